//! What we ask of an upstream index: pages, files, core metadata.

mod client;
mod credentials;
mod error;
mod fetch;
mod index;
mod inward;
mod metadata;
mod page;
mod zip_tail;

pub use client::{Client, Options};
pub use credentials::{Credentials, Login};
pub use error::{Error, shown};
pub use fetch::{Fetched, Progress, Wanted, fetch, size_of};
pub use index::{Index, IndexError, Kind, Upstream};
pub use metadata::{MetadataSource, fetch_metadata, fetch_metadata_inside};
pub use page::{Link, Listing, Source};
