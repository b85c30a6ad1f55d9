//! Why something is not done: what a command says and the API answers.

use http::StatusCode;

use crate::server::refusal::Refusal;
use crate::store;

/// Why something is not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Wrong {
    /// What is asked for cannot be.
    #[error("{0}")]
    Asked(String),
    /// Something that is named is not there.
    #[error("{0}")]
    Unknown(String),
    /// It would be possible if the mirror stood otherwise.
    #[error("{0}")]
    Stands(String),
    /// The store failed.
    #[error(transparent)]
    Store(store::Error),
}

impl From<store::Error> for Wrong {
    fn from(error: store::Error) -> Self {
        match error {
            store::Error::NoSnapshot { .. } => Self::Unknown(error.to_string()),
            store::Error::SnapshotName { .. } => Self::Asked(error.to_string()),
            store::Error::SnapshotInUse { .. } | store::Error::NothingBefore { .. } => {
                Self::Stands(error.to_string())
            }
            other => Self::Store(other),
        }
    }
}

impl From<Wrong> for Refusal {
    fn from(wrong: Wrong) -> Self {
        let (status, why) = match wrong {
            Wrong::Asked(why) => (StatusCode::BAD_REQUEST, why),
            Wrong::Unknown(why) => (StatusCode::NOT_FOUND, why),
            Wrong::Stands(why) => (StatusCode::CONFLICT, why),
            Wrong::Store(error) => return Self::Store(error),
        };
        Self::NotTaken { status, why }
    }
}
