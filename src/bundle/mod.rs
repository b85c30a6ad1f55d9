//! Air-gap export and import: one tar file, its manifest first, then the wheels as they are.
//!
//! ```text
//! manifest.json              what the bundle promises ([`Manifest`])
//! manifest.json.minisig      its signature, where a key was given
//! wheels/<sha256>/<file>     each wheel of the manifest, in its order
//! ```
//!
//! Beside the bundle lies `<bundle>.minisig`, a signature in minisign's format over the whole file. A bundle may be split
//! into parts, `<bundle>.001` and so on, whose concatenation is the file. Nothing of the machine's clock is relied on:
//! bundles are ordered by the ids of the snapshots that they carry, which grow in their site whatever its clock says.

mod error;
mod export;
mod import;
mod manifest;
mod parts;
mod sign;
mod stage;
mod vouch;

pub use error::Error;
pub use export::{Exported, export};
pub use import::{Imported, Means, Trust, import};
pub use manifest::{Base, Manifest, Packed, Receipt, Text};
pub use sign::{PublicKey, SecretKey, make_key};
