//! Several servers over one catalogue, with pip behind a proxy that asks them in turn, while parts of it are killed.

use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::snapshot::{files, json, wheel};
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
        while get(&mirror.url(""), &page, JSON).status == 503
            || files(&mirror.url(""), ORIN, "demo") != expected
        {
            assert!(began.elapsed() < limit, "{:?}", get(&mirror.url(""), &page, JSON));
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
