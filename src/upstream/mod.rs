//! What we ask of an upstream index.
