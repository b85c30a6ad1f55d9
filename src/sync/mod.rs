//! One pass: plan, fetch, inspect, keep.
