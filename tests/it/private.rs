//! Connections to the database and to the bucket over TLS, by certificates of an authority of the site's own.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use jetwheel::digest::Sha256;
use jetwheel::store::{Backends, Error, Postgres, S3, Store};

use crate::snapshot::{json, wheel};
use crate::support::clients::{JETPACK_6, Pip};
use crate::support::http::get;
use crate::support::mirror::Mirror;
use crate::support::nginx::RoundRobin;
use crate::support::postgres::Server;
use crate::support::site::{CREDENTIALS, Site};
use crate::tls::Authority;

const ORIN: &str = "orin-jp6.2";

/// Why a store could not be opened, by whoever does not wait.
fn refused(folder: &Path, catalogue: String) -> String {
    let catalogue = Some(Postgres { url: catalogue, ..Postgres::default() });
    let backends = Backends { catalogue, patience: Duration::ZERO, ..Backends::default() };
    match Store::open_with(&folder.join("refused"), &backends) {
        Err(error @ (Error::Unreachable { .. } | Error::Catalogue { .. })) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

/// The site's authority, in the folder `ours`, and another.
fn authorities(folder: &Path) -> [Authority; 2] {
    ["ours", "others"].map(|name| {
        let folder = folder.join(name);
        fs_err::create_dir(&folder).unwrap();
        Authority::new(&folder)
    })
}

#[test]
fn the_database_is_reached_over_tls_and_its_certificate_and_name_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let ours = dir.path().join("ours");
    let [authority, stranger] = authorities(dir.path());
    authority.issue("2001");
    let server = Server::start_with_tls(&ours.join("mirror.pem"), &ours.join("mirror.key"));
    let plain = server.database("private");
    let address = |host: &str, more: &str| {
        format!("postgres://jetwheel@{host}:{}/private?sslmode={more}", server.port())
    };
    let (ca, other_ca) = (authority.ca().display().to_string(), stranger.ca().display().to_string());
    let path = wheel(dir.path(), "demo", "1.0", "");

    for mode in ["verify-full", "require", "verify-ca"] {
        let site = Site::with_postgres(&address("localhost", &format!("{mode}&sslrootcert={ca}")));
        let (code, answer) = json(site.command().arg("add").arg(&path));
        assert_eq!(code, 0, "{mode}: {answer}");
        let config = site.config();
        let arguments: [&OsStr; 2] = ["--config".as_ref(), config.as_ref()];
        let mirror = Mirror::serving_with(&site.data(), &arguments);
        assert_eq!(get(&mirror.url(""), &format!("/{ORIN}/simple/demo/"), &[]).status, 200);
        let encrypted = server.sql(
            "private",
            "SELECT count(*) > 0 AND bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
             WHERE application_name = 'jetwheel'",
        );
        assert_eq!(encrypted, "t", "{mode}");
    }
    for (what, url, expected) in [
        ("without TLS", format!("{plain}?sslmode=disable"), "no pg_hba.conf entry"),
        (
            "another authority",
            address("localhost", &format!("verify-full&sslrootcert={other_ca}")),
            "certificate",
        ),
        ("the system's authorities", address("localhost", "require"), "certificate"),
        (
            "another name",
            address("db.example", &format!("verify-full&hostaddr=127.0.0.1&sslrootcert={ca}")),
            "not valid for name",
        ),
    ] {
        let said = refused(dir.path(), url);
        assert!(said.contains(expected), "{what}: {said}");
    }
}

#[test]
fn the_bucket_is_reached_over_tls_and_its_certificate_is_checked() {
    let dir = tempfile::tempdir().unwrap();
    let ours = dir.path().join("ours");
    let [authority, stranger] = authorities(dir.path());
    authority.issue("2002");
    let (server, s3) = (Server::start(), crate::support::s3::Server::start());
    s3.bucket("private");
    let proxy = RoundRobin::over_tls(&[s3.endpoint()], &ours.join("mirror.pem"), &ours.join("mirror.key"));
    let site = Site::at_endpoint(proxy.url(), "private", server.database("private"));
    let text = fs_err::read_to_string(site.config()).unwrap();
    let config = |name: &str, more: &str| {
        let path = dir.path().join(name);
        fs_err::write(&path, format!("{text}ca = \"ours/site-ca.pem\"\n{more}")).unwrap();
        path
    };
    let (redirects, streams) = (config("redirects.toml", ""), config("streams.toml", "stream = true\n"));
    let path = wheel(dir.path(), "demo", "1.0", "");
    let (name, bytes) = (path.file_name().unwrap().to_str().unwrap(), fs_err::read(&path).unwrap());
    let command = || {
        let mut command = crate::support::jetwheel(&site.data());
        command.arg("--config").arg(&redirects);
        command
    };
    let (code, answer) = json(command().arg("add").arg(&path));
    assert_eq!(code, 0, "{answer}");
    let (code, report) = json(command().arg("verify"));
    assert_eq!((code, report["blobs"].as_u64()), (0, Some(1)), "{report}");

    let target = format!("/{ORIN}/files/{}/{name}", Sha256::of(&bytes));
    let serve = |config: &Path| Mirror::serving_with(&site.data(), &["--config".as_ref(), config.as_ref()]);
    let mirror = serve(&redirects);
    let answer = get(&mirror.url(""), &target, &[]);
    let location = answer.header("location").unwrap();
    assert!(answer.status == 302 && location.starts_with(&proxy.url()), "{answer:?}");
    let curl = |ca: &Path| {
        let output = Command::new("curl").args(["-s", "-f", location, "--cacert"]).arg(ca).output().unwrap();
        (output.status.code(), output.stdout)
    };
    assert_eq!(curl(&authority.ca()), (Some(0), bytes.clone()));
    assert_eq!(curl(&stranger.ca()), (Some(60), Vec::new()), "60: the certificate could not be verified");
    let mirror = serve(&streams);
    let fetched = Pip::newest().download(&mirror.index_url(ORIN), JETPACK_6, "demo");
    assert!(fetched.names == [name] && fetched.bytes(name) == bytes, "{}", fetched.said);

    for ca in [Some(stranger.ca()), None] {
        let blobs = S3 {
            url: "s3://private/site".to_owned(),
            endpoint: Some(proxy.url()),
            path_style: true,
            ca,
            variables: CREDENTIALS.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
            ..S3::default()
        };
        let backends = Backends { blobs: Some(blobs), ..Backends::default() };
        let error = Store::open_with(&dir.path().join("refused"), &backends).unwrap_err().to_string();
        assert!(error.contains("certificate"), "{error}");
    }
}
