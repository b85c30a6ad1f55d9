//! Sets as real installers read them.
