//! Tests of behaviour: the real binary, real wheels in small, real clients.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test ends by a panic; helper functions are not seen as tests"
)]

mod limits;
mod support;

mod abi;
mod access;
mod admin_api;
mod airgap;
mod bundle;
mod changed_file;
mod chaos;
mod cli;
mod config;
mod crowd;
mod database;
mod detect;
mod device;
mod docs;
mod fatbin;
mod files_api;
mod fleet;
mod full_disk;
mod hostile;
mod http2;
mod index_cases;
mod modes;
mod observe;
mod packaging;
mod pages;
mod pairs;
mod pip_uv;
mod policy;
mod policy_files;
mod private;
mod pull;
mod queue;
mod resolve;
mod resolve_http;
mod resolve_real;
mod simple_api;
mod snapshot;
mod store;
mod sync;
mod sync_resolve;
mod tidy;
mod tls;
mod two_servers;
mod upload;
mod upstream_hostile;
mod views;
mod wheel;
