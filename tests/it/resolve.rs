//! Resolving: uv's scenarios, brute force as an oracle, explanations, the command.

mod catalogue;
mod choice;
mod device_cases;
mod explanations;
mod hostile;
mod scenarios;
mod together;
mod universes;
