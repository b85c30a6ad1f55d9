//! The mirror over HTTP.
