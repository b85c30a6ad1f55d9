//! Resolving: uv's scenarios, brute force as an oracle, explanations, the command.

mod catalogue;
mod explanations;
mod scenarios;
