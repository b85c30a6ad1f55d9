//! What a wheel contains, whatever the device.
//!
//! [`inspect_wheel`] reads a wheel once, front to back and in flat memory, and yields its [`Facts`]: what the members are,
//! which GPU code they hold, what they need of the system, and what is wrong with them. `file.rs` aside, nothing here opens
//! a file: archives are read through [`Source`].
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::cast_possible_truncation,
        clippy::unwrap_used
    )
)]

mod archive;
mod assemble;
mod class;
mod dist_info;
mod error;
mod facts;
mod file;
mod filename;
mod inflate;
mod inspect;
mod member;
mod metadata;
mod name;
mod record;
mod size;
mod tags;

pub use archive::{DIRECTORY_CAP, MOST_MEMBERS, Source};
pub use error::Error;
pub use facts::{
    Compiler, CompilerTarget, Damage, DamageCode, Facts, FatbinRow, GpuClass, INSPECTOR, Member, MemberKind,
};
pub use file::{inspect_file, inspect_wheel, inspect_wheel_as};
pub use filename::{FilenameErrorKind, Machine, NotAWheelFilename, WheelFilename};
pub use inspect::{InspectOptions, Inspection, inspect_file_source, inspect_wheel_source};
pub use metadata::{METADATA_CAP, Metadata, MetadataError, wheel_tags};
pub use name::{NotAProjectName, ProjectName};
pub use size::{NotASize, Size};
pub use tags::{SupportedTags, TagMismatch};
