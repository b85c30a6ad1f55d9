//! The queue of a shared store: each job is done once, by whoever is there.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::snapshot::json;
use crate::support::devpi::Devpi;
use crate::support::postgres::Server;
use crate::support::site::Site;

const ORIN: &str = "orin-jp6.2";

#[test]
fn each_job_is_done_once_and_those_of_the_dead_are_done_by_others() {
    let server = Server::start();
    let site = Site::with_postgres(&server.database("queue"));
    let (one, other) = (site.open(), site.open());
    let (queue, second) = (one.queue().unwrap(), other.queue().unwrap());
    let bodies: Vec<String> = (0..60).map(|number| format!("job {number}")).collect();
    assert_eq!(queue.add(&bodies).unwrap(), 60);
    assert_eq!(queue.add(&bodies[..5]).unwrap(), 0, "what waits is not added again");

    let (first, mut given) = (queue.take().unwrap().unwrap(), BTreeSet::new());
    given.insert(first.body.clone());
    first.failed("it\0failed").unwrap();
    assert_eq!(server.sql("queue", "SELECT error FROM job WHERE attempts = 1"), "it failed");
    // The process of this one dies: its lease ends.
    let dead = queue.take().unwrap().unwrap();
    server.sql("queue", "UPDATE job SET due = now() - interval '1 second' WHERE state = 'running'");
    let again = queue.take().unwrap().unwrap();
    assert_eq!((again.body.as_str(), again.attempt), (dead.body.as_str(), 2));
    // It wakes up after all, and no longer has a say.
    dead.failed("late").unwrap();
    given.insert(again.body.clone());
    again.done().unwrap();

    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for queue in [&queue, &second, &queue, &second] {
            let done = &done;
            scope.spawn(move || {
                while let Some(job) = queue.take().unwrap() {
                    done.lock().unwrap().push(job.body.clone());
                    job.done().unwrap();
                }
            });
        }
    });
    let done = done.into_inner().unwrap();
    let each: BTreeSet<String> = done.iter().cloned().collect();
    assert_eq!((done.len(), each.len(), each.intersection(&given).count()), (58, 58, 0));

    // What fails again and again is dead, and hinders nobody.
    for attempt in 2..=5 {
        server.sql("queue", "UPDATE job SET due = now() WHERE state = 'waiting'");
        let job = queue.take().unwrap().unwrap();
        assert_eq!(job.attempt, attempt);
        job.failed("no").unwrap();
    }
    let length = queue.length().unwrap();
    assert_eq!((length.waiting, length.running, length.done, length.dead), (0, 0, 59, 1));
}

/// A worker with a folder of its own, as on a machine of its own.
fn worker(site: &Site, folder: &std::path::Path) -> Command {
    let mut command = site.command_in(folder);
    command.arg("work").stdout(Stdio::null()).stderr(Stdio::null());
    command
}

#[test]
fn work_fetches_what_sync_queues_and_gets_over_a_killed_worker() {
    let server = Server::start();
    let s3 = crate::support::s3::Server::start();
    let site = Site::with_s3(&s3, "queue", Some(server.database("work")));
    let dir = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..6).map(|number| format!("demo{number}")).collect();
    let wheels = dir.path().join("wheels");
    for name in &names {
        crate::snapshot::wheel(&wheels, name, "1.0", "");
    }
    let devpi = Devpi::start();
    devpi.upload_all(&wheels);
    let (code, answer) = json(
        site.command()
            .args(["sync", "--device", ORIN, "--queue", "--upstream", &devpi.index_url()])
            .args(&names),
    );
    assert_eq!((code, &answer["queued"]), (0, &6.into()), "{answer}");
    let folders = [dir.path().join("one"), dir.path().join("two")];
    let mut killed = worker(&site, &folders[0]).spawn().unwrap();
    let began = Instant::now();
    while server.sql("work", "SELECT count(*) FROM job WHERE attempts > 0") == "0" {
        assert!(began.elapsed() < Duration::from_mins(1));
        std::thread::sleep(Duration::from_millis(5));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    // Half a minute is long for a test.
    server.sql("work", "UPDATE job SET due = now() WHERE state = 'running'");
    let done = worker(&site, &folders[1]).arg("--until-empty").status().unwrap();
    assert!(done.success());
    let held: Vec<String> = site.open().projects(true).unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(held, names);
    let (code, report) = json(site.command().arg("verify"));
    assert_eq!((code, report["blobs"].as_u64()), (0, Some(6)), "{report}");
}
