//! Requirements of a device to a consistent set of wheels, or why there is none.
