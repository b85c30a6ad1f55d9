//! What a wheel contains, whatever the device.
//!
//! [`inspect_wheel`] reads a wheel once, front to back and in flat memory, and yields its [`Facts`]: what the members are,
//! which GPU code they hold, what they need of the system, and what is wrong with them. [`file`](self) aside, nothing here
//! does IO: zip archives are read through [`Source`].
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::cast_possible_truncation,
        clippy::unwrap_used
    )
)]

mod facts;
mod filename;
mod metadata;
mod name;
mod record;
mod tags;

pub use facts::{
    Compiler, CompilerTarget, Damage, DamageCode, Facts, FatbinRow, GpuClass, Member, MemberKind,
};
pub use filename::{FilenameErrorKind, NotAWheelFilename, WheelFilename};
pub use metadata::{METADATA_CAP, Metadata, MetadataError, wheel_tags};
pub use name::{NotAProjectName, ProjectName};
pub use tags::{SupportedTags, TagMismatch};
