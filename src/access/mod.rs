//! Who may do what: tokens and their scopes, what a request presents, and which devices may be read by anybody.
//!
//! Values in, values out: `store` keeps the tokens, `server` asks, `cli` makes and revokes them.

mod caller;
mod presented;
mod rules;
mod token;

pub use caller::{Caller, Denied};
pub use presented::Presented;
pub use rules::{Reading, Rules};
pub use token::{BadToken, CHANCE, NewToken, Scope, Secret, Token, Tokens};
