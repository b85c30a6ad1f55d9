//! Several servers over one catalogue, with pip behind a proxy that asks them in turn, while parts of it are killed.

use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::snapshot::{json, names_on, wheel};
use crate::support::clients::{JETPACK_6, Pip};
use crate::support::http::get;
use crate::support::mirror::Mirror;
use crate::support::nginx::RoundRobin;
use crate::support::postgres::Server;
use crate::support::site::Site;

const ORIN: &str = "orin-jp6.2";
const JSON: &[(&str, &str)] = &[("Accept", "application/vnd.pypi.simple.v1+json")];

/// How long a change may take to be seen by all servers.
const SEEN_WITHIN: Duration = Duration::from_secs(2);
/// How long a server may take to notice that the database answers again.
const BACK_WITHIN: Duration = Duration::from_secs(20);

fn add(site: &Site, wheel: &Path) {
    let (code, answer) = json(site.command().arg("add").arg(wheel));
    assert_eq!(code, 0, "{answer}");
}

/// Waits until all servers list these files. Meanwhile a server may say that it cannot tell.
fn wait_for(mirrors: &[Mirror], expected: &[&str], limit: Duration) {
    let began = Instant::now();
    let page = format!("/{ORIN}/simple/demo/");
    for mirror in mirrors {
        loop {
            let answer = get(&mirror.url(""), &page, JSON);
            let seen = match answer.status {
                404 => Vec::new(),
                503 => vec!["unknown".to_owned()],
                _ => names_on(&answer),
            };
            if seen == expected {
                break;
            }
            assert!(began.elapsed() < limit, "{answer:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn servers_agree_and_get_over_the_loss_of_the_database_and_of_each_other() {
    let mut server = Server::start();
    let site = Site::with_postgres(&server.database("fleet"));
    let config = site.config();
    let arguments: [&OsStr; 2] = ["--config".as_ref(), config.as_ref()];
    let mut mirrors: Vec<Mirror> = (0..3).map(|_| Mirror::serving_with(&site.data(), &arguments)).collect();
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (wheel(dir.path(), "demo", "1.0", ""), wheel(dir.path(), "demo", "2.0", ""));
    let names = ["demo-1.0-cp310-cp310-linux_aarch64.whl", "demo-2.0-cp310-cp310-linux_aarch64.whl"];
    add(&site, &one);
    wait_for(&mirrors, &names[..1], SEEN_WITHIN);

    let proxy = RoundRobin::over(&mirrors.iter().map(|mirror| mirror.url("")).collect::<Vec<_>>());
    let fetch = |requirement: &str| {
        let fetched =
            Pip::newest().download(&format!("{}/{ORIN}/simple/", proxy.url()), JETPACK_6, requirement);
        assert!(fetched.done, "{}", fetched.said);
        fetched.names
    };
    assert_eq!(fetch("demo"), names[..1]);

    // Pages at hand are served while the database is away; what is not at hand is refused for now, never wrongly.
    server.kill();
    wait_for(&mirrors, &names[..1], Duration::ZERO);
    for mirror in &mirrors {
        let unknown = get(&mirror.url(""), &format!("/{ORIN}/simple/other/"), JSON);
        assert_eq!((unknown.status, unknown.header("retry-after").is_some()), (503, true), "{unknown:?}");
    }
    let waiting = site.command().arg("add").arg(&two).stderr(std::process::Stdio::null()).spawn();
    server.start_again();
    assert!(waiting.unwrap().wait().unwrap().success(), "what began without the database ends with it");
    wait_for(&mirrors, &names, BACK_WITHIN);
    assert_eq!(fetch("demo"), names[1..]);
    assert_eq!(get(&mirrors[0].url(""), &format!("/{ORIN}/simple/other/"), JSON).status, 404);

    // One of the servers is killed: the proxy asks the others.
    mirrors[1].end();
    for _ in 0..3 {
        assert_eq!(fetch("demo==1.0"), names[..1]);
    }
    let (code, report) = json(site.command().arg("verify"));
    assert_eq!((code, report["blobs"].as_u64()), (0, Some(2)), "{report}");
}

/// What lies in a bucket is given out by signed addresses or through the mirror, to devices that may have it alone.
#[test]
fn files_of_a_bucket_are_redirected_or_streamed_and_pages_outlive_it() {
    let (server, s3) = (Server::start(), crate::support::s3::Server::start());
    let site = Site::with_s3(&s3, "wheels", Some(server.database("bucket")));
    let dir = tempfile::tempdir().unwrap();
    let path = wheel(dir.path(), "demo", "1.0", "");
    let (name, bytes) = (path.file_name().unwrap().to_str().unwrap(), fs_err::read(&path).unwrap());
    add(&site, &path);
    let streams = dir.path().join("streams.toml");
    let text = fs_err::read_to_string(site.config()).unwrap();
    fs_err::write(&streams, format!("{text}stream = true\n")).unwrap();
    let serve = |config: &Path| Mirror::serving_with(&site.data(), &["--config".as_ref(), config.as_ref()]);
    let (redirects, streams) = (serve(&site.config()), serve(&streams));
    for mirror in [&redirects, &streams] {
        let fetched = Pip::newest().download(&mirror.index_url(ORIN), JETPACK_6, "demo");
        assert_eq!(fetched.names, [name], "{}", fetched.said);
        assert!(fetched.bytes(name) == bytes);
    }
    let target = format!("/{ORIN}/files/{}/{name}", jetwheel::digest::Sha256::of(&bytes));
    let answer = get(&redirects.url(""), &target, &[]);
    assert_eq!(answer.status, 302, "{answer:?}");
    assert!(answer.header("location").unwrap().contains("X-Amz-Signature="));
    let head = crate::support::http::head(&redirects.url(""), &target, &[]);
    assert_eq!((head.status, head.header("content-length")), (200, Some(bytes.len().to_string().as_str())));
    let part = get(&streams.url(""), &target, &[("Range", "bytes=5-104")]);
    assert_eq!((part.status, part.body.as_slice()), (206, &bytes[5..105]));
    for mirror in [&redirects, &streams] {
        let refused = get(&mirror.url(""), &target.replace(ORIN, "thor-jp7.0"), &[]);
        assert_eq!((refused.status, refused.header("location")), (403, None));
    }
    // The bucket takes connections and answers none: pages need nothing of it.
    s3.signal("-STOP");
    wait_for(&[redirects, streams], &[name], Duration::ZERO);
    s3.signal("-CONT");
}
