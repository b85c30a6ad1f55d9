//! What commands do where the database does not let them in: what waiting may heal is waited for, all else is told at once.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

use crate::support::postgres::Server;
use crate::support::site::Site;
use crate::sync::said;
use crate::tls::Authority;

/// What is said of a wait.
const WAITS: &str = "waiting for it, for up to 60 s";

/// What a command says that is not let in; it must not have waited.
fn refused(url: &str, password: &str, verb: &[&str]) -> String {
    let site = Site::with_postgres(url);
    let output = site.command().args(verb).env("PGPASSWORD", password).output().unwrap();
    let said = said(&output);
    assert_eq!(output.status.code(), Some(3), "{url}: {said}");
    assert!(!said.contains("waiting"), "{url}: {said}");
    said
}

#[test]
fn what_no_waiting_heals_is_told_at_once_with_its_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let [ours, others] = ["ours", "others"].map(|name| {
        let folder = dir.path().join(name);
        fs_err::create_dir(&folder).unwrap();
        (Authority::new(&folder), folder)
    });
    ours.0.issue("3001");
    let encrypted = Server::start_with_tls(&ours.1.join("mirror.pem"), &ours.1.join("mirror.key"));
    let plain = Server::start();
    let owned = plain.database("guarded");
    plain.sql(
        "guarded",
        "CREATE ROLE guarded LOGIN PASSWORD 'right'; ALTER DATABASE guarded OWNER TO guarded",
    );
    let at = |server: &Server, rest: &str| {
        format!("postgres://{}", rest.replace("PORT", &server.port().to_string()))
    };
    let ca = |authority: &Authority| authority.ca().display().to_string();
    let verify = |host: &str, more: &str| {
        at(&encrypted, &format!("jetwheel@{host}:PORT/postgres?sslmode=verify-full{more}"))
    };
    let password = "check the role and its password, in the address or in PGPASSWORD";
    let certificate = "by sslrootcert in the address the PEM file of the authority that signed it";
    for (url, given, found, remedy) in [
        (at(&plain, "guarded@127.0.0.1:PORT/guarded"), "wrong", "password authentication failed", password),
        (at(&plain, "guarded@127.0.0.1:PORT/guarded"), "", "password missing", password),
        (at(&plain, "nobody@127.0.0.1:PORT/guarded"), "", "role \"nobody\" does not exist", "pg_hba.conf"),
        (
            at(&plain, "jetwheel@127.0.0.1:PORT/nothing"),
            "",
            "database \"nothing\" does not exist",
            "CREATE DATABASE",
        ),
        (at(&plain, "guarded@127.0.0.1:PORT/postgres"), "right", "permission denied", "OWNER TO"),
        (format!("{owned}?sslmode=require"), "", "does not support TLS", "switch TLS on in the server"),
        (at(&encrypted, "jetwheel@127.0.0.1:PORT/postgres"), "", "no encryption", "by TLS alone"),
        (
            verify("localhost", &format!("&sslrootcert={}", ca(&others.0))),
            "",
            "invalid peer certificate",
            certificate,
        ),
        (verify("localhost", ""), "", "invalid peer certificate", certificate),
        (
            verify("db.example", &format!("&hostaddr=127.0.0.1&sslrootcert={}", ca(&ours.0))),
            "",
            "not valid for name",
            "name the server as its certificate does",
        ),
    ] {
        for verb in [&["verify"][..], &["serve", "--listen", "127.0.0.1:0"]] {
            let said = refused(&url, given, verb);
            assert!(said.contains(found) && said.contains(remedy), "{url}: {said}");
        }
    }
    let site = Site::with_postgres(&at(&plain, "guarded@127.0.0.1:PORT/guarded"));
    let output = site.command().arg("verify").env("PGPASSWORD", "right").output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn a_database_that_is_away_is_waited_for_and_what_for_is_said() {
    let mut server = Server::start();
    let site = Site::with_postgres(&server.database("away"));
    server.kill();
    let mut command: Command = site.command();
    let mut waiting = command.arg("verify").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(waiting.stderr.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert!(line.contains(WAITS) && line.contains("/away cannot be reached"), "{line:?}");
    server.start_again();
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert!(waiting.wait().unwrap().success(), "{rest}");
    assert!(!rest.contains("waiting"), "once is enough: {rest}");
}
