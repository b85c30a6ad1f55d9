//! What an error of PostgreSQL's means: whether the same may work a little later, and what to do where it does not.

use tokio_postgres::Error;

use crate::store::away::is_of_tls;
use crate::store::catalogue::Fault;
use crate::wording::{causes, with_causes};

/// An error as a fault: away where waiting may help, refused with a remedy where it does not.
pub(in crate::store) fn fault(error: &Error) -> Fault {
    let found = with_causes(error);
    let refused = |remedy: &str| Fault::Refused(format!("{found}; {remedy}"));
    let Some(code) = error.code() else {
        return match lasting(error) {
            Some(remedy) => refused(remedy),
            None => Fault::Away(found),
        };
    };
    match code.code().as_bytes() {
        // Connections, resources, an operator who stops the server, and transactions that were in each other's way.
        [b'0', b'8', ..] | [b'5', b'3', ..] | [b'5', b'7', b'P', ..] | [b'4', b'0', ..] => Fault::Away(found),
        b"28P01" => refused(PASSWORD),
        [b'2', b'8', ..] => refused(
            "pg_hba.conf of the server says who may come in, from where, as whom, and whether by TLS alone (sslmode in the address)",
        ),
        b"3D000" => refused("make it first, for the role in the address: CREATE DATABASE … OWNER …"),
        b"42501" => refused("have the role in the address own the database: ALTER DATABASE … OWNER TO …"),
        _ => Fault::Refused(found),
    }
}

const PASSWORD: &str = "check the role and its password, in the address or in PGPASSWORD";

/// What to do about an error by which the server says nothing and that no waiting heals.
fn lasting(error: &Error) -> Option<&'static str> {
    if is_of_tls(error) {
        return Some(
            "name the server as its certificate does, and by sslrootcert in the address the PEM file of the authority that signed it",
        );
    }
    // The library tells these apart in words alone.
    match error.to_string().as_str() {
        "invalid configuration" | "authentication error" => Some(PASSWORD),
        // One that breaks off in the middle is an error of the network.
        "error performing TLS handshake"
            if !causes(error).any(|cause| cause.downcast_ref::<std::io::Error>().is_some()) =>
        {
            Some(
                "switch TLS on in the server, or say sslmode=disable in the address where the network is to be trusted",
            )
        }
        _ => None,
    }
}
