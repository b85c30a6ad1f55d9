//! Resolving: uv's scenarios, brute force as an oracle, explanations, the command.

mod catalogue;
mod choice;
mod explanations;
mod scenarios;
mod universes;
