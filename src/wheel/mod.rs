//! What a wheel contains, whatever the device.

mod facts;
mod filename;
mod name;

pub use facts::{
    Compiler, CompilerTarget, Damage, DamageCode, Facts, FatbinRow, GpuClass, Member, MemberKind,
};
pub use filename::WheelFilename;
pub use name::{NotAProjectName, ProjectName};
