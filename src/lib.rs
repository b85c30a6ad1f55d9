//! A wheel mirror and resolver for NVIDIA Jetson: pip only receives wheels whose embedded GPU code runs on the device.
//!
//! The modules in reading order, from the bottom up:
//!
//! - `wording`: errors with their causes, and so many of a noun, as messages have them.
//! - [`digest`]: SHA-256 as a type, and a reader that hashes what passes through.
//! - [`fatbin`]: which GPU code a file holds; a scanner fed with chunks, front to back, in flat memory.
//! - [`wheel`]: what a wheel contains, whatever the device ([`wheel::Facts`]).
//! - [`simple`]: the simple index of PEP 503 and PEP 691 as values, parsed and rendered.
//! - [`policy`]: device profiles, and [`policy::judge`]: facts × profile × policy = verdict.
//! - [`resolve`]: requirements of a device to a consistent set, or why there is none.
//! - [`access`]: tokens, and who may do what.
//! - [`store`]: blobs with sidecar files, and the catalogue.
//! - [`upstream`], [`sync`]: where wheels come from, and one pass of fetching them.
//! - [`pull`]: pages and files of upstreams, when somebody asks for them.
//! - [`bundle`]: signed archives for sites without network.
//! - [`server`]: the mirror over HTTP.
//! - [`cli`]: the commands; composes all of the above.

pub mod access;
pub mod bundle;
pub mod cli;
pub mod digest;
pub mod fatbin;
pub mod policy;
pub mod pull;
pub mod resolve;
pub mod server;
pub mod simple;
pub mod store;
pub mod sync;
pub mod upstream;
pub mod wheel;
mod wording;
