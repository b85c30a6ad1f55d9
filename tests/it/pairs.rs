//! One suite of what a store does, over every pair of what it can be kept in.

use std::io::Write as _;
use std::time::{Duration, Instant};

use jetwheel::digest::Sha256;
use jetwheel::store::{
    Error, FindingKind, Incident, IncidentKind, NewSnapshot, Provenance, Put, SnapshotFile, Store,
};
use jetwheel::wheel::Facts;

use crate::snapshot::kill_at_any_moment_leaves_every_snapshot_and_channel_whole;
use crate::store::{
    MEMBER, answers, facts, fill, kill_at_any_moment_loses_nothing_that_was_acknowledged, project, put,
    read_blob, run_json, seen,
};
use crate::support::postgres::Server;
use crate::support::s3;
use crate::support::site::Site;

/// How long another process may take to see a change.
const SEEN_WITHIN: Duration = Duration::from_mins(1);

#[test]
fn sled_and_disk() {
    behaves(&mut Site::embedded);
    kill_at_any_moment_loses_nothing_that_was_acknowledged(&Site::embedded(), 20);
    kill_at_any_moment_leaves_every_snapshot_and_channel_whole(&Site::embedded(), 24);
}

#[test]
fn postgres_and_disk() {
    let server = Server::start();
    let mut number = 0;
    let mut site = || {
        number += 1;
        Site::with_postgres(&server.database(&format!("site{number}")))
    };
    behaves(&mut site);
    others_see_changes(&site());
    two_processes_write_at_once(&site());
    kill_at_any_moment_loses_nothing_that_was_acknowledged(&site(), 6);
    kill_at_any_moment_leaves_every_snapshot_and_channel_whole(&site(), 10);
}

#[test]
fn sled_and_s3() {
    let s3 = s3::Server::start();
    let mut number = 0;
    let mut site = || {
        number += 1;
        Site::with_s3(&s3, &format!("bucket{number}"), None)
    };
    behaves(&mut site);
    kill_at_any_moment_loses_nothing_that_was_acknowledged(&site(), 3);
    kill_at_any_moment_leaves_every_snapshot_and_channel_whole(&site(), 6);
}

#[test]
fn postgres_and_s3() {
    let (server, s3) = (Server::start(), s3::Server::start());
    let mut number = 0;
    let mut site = || {
        number += 1;
        let database = server.database(&format!("site{number}"));
        Site::with_s3(&s3, &format!("bucket{number}"), Some(database))
    };
    behaves(&mut site);
    others_see_changes(&site());
    two_processes_write_at_once(&site());
    kill_at_any_moment_loses_nothing_that_was_acknowledged(&site(), 3);
    kill_at_any_moment_leaves_every_snapshot_and_channel_whole(&site(), 6);
    large_wheels_are_sent_in_parts(&site());
}

/// A wheel of several parts comes back whole.
fn large_wheels_are_sent_in_parts(site: &Site) {
    let store = site.open();
    let bytes: Vec<u8> = (0..20_u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    put(&store, "demo-1.0-py3-none-any.whl", &bytes, &seen("one", "https://one.example/large")).unwrap();
    let sha256 = Sha256::of(&bytes);
    assert!(read_blob(&store, &sha256) == bytes);
    let report = store.verify(&|_, _| {}).unwrap();
    assert_eq!((report.bytes, report.findings), (bytes.len() as u64, Vec::new()));
    assert!(store.signed_url(&sha256).unwrap().unwrap().contains("X-Amz-Signature="));
}

/// An embedded store moves to a database and a bucket and back, and nothing is different after.
#[test]
fn a_store_moves_to_another_kind_and_back() {
    let (server, s3) = (Server::start(), s3::Server::start());
    let (from, scaled, back) =
        (Site::embedded(), Site::with_s3(&s3, "moved", Some(server.database("moved"))), Site::embedded());
    let store = from.open();
    fill(&store);
    let new = NewSnapshot { reason: "create".to_owned(), ..NewSnapshot::default() };
    let id = store.take_snapshot(&new).unwrap().unwrap();
    store.promote("stable", &id).unwrap();
    store.put_incident(&Incident::now(IncidentKind::ChangedFile, "once".to_owned())).unwrap();
    let state = |store: &Store| {
        (
            answers(store),
            store.snapshot(&id).unwrap(),
            store.channels(),
            store.incidents().unwrap(),
            store.site().unwrap(),
        )
    };
    let before = state(&store);
    drop(store);
    let migrate = |from: &Site, to: &Site| {
        let mut command = from.command();
        let (code, answer) =
            run_json(command.arg("migrate").arg("--to").arg(to.config()).arg("--to-data").arg(to.data()));
        assert_eq!(code, Some(0), "{answer}");
        answer["copied"].clone()
    };
    let copied = migrate(&from, &scaled);
    assert_eq!((&copied["wheels"], &copied["snapshots"]), (&31.into(), &1.into()));
    assert!(state(&scaled.open()) == before);
    let again = migrate(&from, &scaled);
    assert_eq!((&again["wheels"], &again["known"], &again["snapshots"]), (&0.into(), &32.into(), &0.into()));
    migrate(&scaled, &back);
    assert!(state(&back.open()) == before);
}

/// One thing that a pair promises, and its name.
type Behaviour = (&'static str, fn(&Site));

/// Everything that a pair promises, each with a site of its own.
fn behaves(site: &mut dyn FnMut() -> Site) {
    let behaviours: [Behaviour; 12] = [
        ("gives_back_what_was_put", gives_back_what_was_put),
        (
            "a_refused_wheel_leaves_its_facts_and_is_held_when_its_bytes_come",
            a_refused_wheel_leaves_its_facts_and_is_held_when_its_bytes_come,
        ),
        (
            "one_name_with_two_digests_is_two_rows_and_the_first_stays_pinned",
            one_name_with_two_digests_is_two_rows_and_the_first_stays_pinned,
        ),
        ("one_digest_with_two_names_is_two_rows", one_digest_with_two_names_is_two_rows),
        ("yanks_follow_the_upstream_and_first_sight_stays", yanks_follow_the_upstream_and_first_sight_stays),
        ("newest_version_first", newest_version_first),
        ("many_files_are_told_as_each_by_itself", many_files_are_told_as_each_by_itself),
        ("names_that_are_no_file_names_are_refused", names_that_are_no_file_names_are_refused),
        ("rebuild_gives_the_same_answers", rebuild_gives_the_same_answers),
        ("incidents_and_reached_upstreams_are_kept", incidents_and_reached_upstreams_are_kept),
        ("snapshots_and_channels_are_kept", snapshots_and_channels_are_kept),
        (
            "verify_and_gc_find_what_is_wrong_and_what_is_unnamed",
            verify_and_gc_find_what_is_wrong_and_what_is_unnamed,
        ),
    ];
    for (name, check) in behaviours {
        let site = site();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&site)));
        assert!(outcome.is_ok(), "{name} fails");
    }
}

fn gives_back_what_was_put(site: &Site) {
    let store = site.open();
    let before = (store.revision(), store.project_revision(&project("demo")));
    let (file, url) = ("demo-1.0-py3-none-any.whl", "https://one.example/demo");
    assert_eq!(put(&store, file, b"abc", &seen("one", url)).unwrap(), Put::New);
    assert_eq!(put(&store, file, b"abc", &seen("one", url)).unwrap(), Put::Known);
    let sha256 = Sha256::of(b"abc");
    let row = store.row(&sha256).unwrap().unwrap();
    assert_eq!(*row.facts, facts(file, b"abc"));
    assert_eq!(row.provenance, seen("one", url));
    assert!(row.held);
    assert_eq!(store.rows(&project("demo")).unwrap(), std::slice::from_ref(&row));
    assert_eq!(store.row_by_url(url).unwrap(), Some(row));
    assert_eq!(store.row_by_url("https://one.example/other").unwrap(), None);
    assert_eq!(store.metadata(&sha256).unwrap().as_deref(), Some(MEMBER));
    assert_eq!(read_blob(&store, &sha256), b"abc");
    assert_eq!(store.row(&Sha256::of(b"x")).unwrap(), None);
    assert_eq!(store.projects(true).unwrap(), [project("demo")]);
    assert!(store.revision() > before.0);
    assert_ne!(store.project_revision(&project("demo")), before.1);
}

fn a_refused_wheel_leaves_its_facts_and_is_held_when_its_bytes_come(site: &Site) {
    let store = site.open();
    let file = "demo-1.0-py3-none-any.whl";
    let provenance = seen("one", "https://one.example/demo");
    assert_eq!(store.put_facts(&facts(file, b"abc"), &provenance).unwrap(), Put::New);
    assert_eq!(store.put_facts(&facts(file, b"abc"), &provenance).unwrap(), Put::Known);
    assert!(!store.rows(&project("demo")).unwrap()[0].held);
    assert!(store.open_blob(&Sha256::of(b"abc")).is_err());
    assert_eq!(store.projects(true).unwrap(), []);
    assert_eq!(store.projects(false).unwrap(), [project("demo")]);
    assert_eq!(put(&store, file, b"abc", &provenance).unwrap(), Put::New);
    assert!(store.rows(&project("demo")).unwrap()[0].held);
    assert_eq!(store.count(&project("demo")).unwrap(), (1, 1));
    // Facts that come later do not take the bytes away.
    assert_eq!(store.put_facts(&facts(file, b"abc"), &provenance).unwrap(), Put::Known);
    assert!(store.row(&Sha256::of(b"abc")).unwrap().unwrap().held);
}

fn one_name_with_two_digests_is_two_rows_and_the_first_stays_pinned(site: &Site) {
    let store = site.open();
    let (file, url) = ("demo-1.0-py3-none-any.whl", "https://one.example/demo");
    put(&store, file, b"first", &seen("one", url)).unwrap();
    put(&store, file, b"changed", &seen("one", url)).unwrap();
    put(&store, file, b"other", &seen("two", "https://two.example/demo")).unwrap();
    assert_eq!(store.rows(&project("demo")).unwrap().len(), 3);
    let check = |store: &Store| {
        assert_eq!(store.pinned("one", file).unwrap(), Some(Sha256::of(b"first")));
        assert_eq!(store.pinned("two", file).unwrap(), Some(Sha256::of(b"other")));
        assert_eq!(store.pinned("three", file).unwrap(), None);
        let by_url = store.row_by_url(url).unwrap().unwrap();
        assert_eq!(by_url.facts.sha256, Sha256::of(b"first"));
    };
    check(&store);
    let before = answers(&store);
    drop(store);
    site.lose_catalogue();
    let store = site.open();
    check(&store);
    assert_eq!(answers(&store), before);
}

/// An index that lists good bytes under a wrong name first must not hide them from another index.
fn one_digest_with_two_names_is_two_rows(site: &Site) {
    let store = site.open();
    put(&store, "wrong-1.0-py3-none-any.whl", b"abc", &seen("one", "https://one.example/w")).unwrap();
    put(&store, "demo-1.0-py3-none-any.whl", b"abc", &seen("two", "https://two.example/d")).unwrap();
    for name in ["wrong", "demo"] {
        let rows = store.rows(&project(name)).unwrap();
        assert_eq!(rows.len(), 1, "{name}");
        assert_eq!(rows[0].facts.project, Some(project(name)));
    }
}

fn yanks_follow_the_upstream_and_first_sight_stays(site: &Site) {
    let store = site.open();
    let file = "demo-1.0-py3-none-any.whl";
    let first = seen("one", "https://one.example/demo");
    put(&store, file, b"abc", &first).unwrap();
    let sha256 = Sha256::of(b"abc");
    let yanked = Provenance {
        yanked: Some("bad".to_owned()),
        first_seen: "2027-01-01T00:00:00Z".to_owned(),
        ..first.clone()
    };
    store.put_provenance(&sha256, &yanked).unwrap();
    let expected = Provenance { yanked: Some("bad".to_owned()), ..first.clone() };
    assert_eq!(store.row(&sha256).unwrap().unwrap().provenance, expected);
    assert_eq!(store.listing(&project("demo")).unwrap()[0].provenance, expected);
    put(&store, file, b"abc", &first).unwrap();
    assert_eq!(store.row(&sha256).unwrap().unwrap().provenance, first);
    assert!(matches!(store.put_provenance(&Sha256::of(b"x"), &first), Err(Error::Unknown(_))));
}

fn newest_version_first(site: &Site) {
    let store = site.open();
    for version in ["2.5.0", "2.10.0", "2.5.0a0+nv24.08"] {
        put(&store, &format!("demo-{version}-py3-none-any.whl"), version.as_bytes(), &seen("one", version))
            .unwrap();
    }
    let rows = store.rows(&project("demo")).unwrap();
    let versions: Vec<_> = rows.iter().filter_map(|row| row.facts.version.as_deref()).collect();
    assert_eq!(versions, ["2.10.0", "2.5.0", "2.5.0a0+nv24.08"]);
}

/// More than are asked of a database at once.
fn many_files_are_told_as_each_by_itself(site: &Site) {
    let store = site.open();
    let files: Vec<String> = (0..70).map(|version| format!("demo-{version}-py3-none-any.whl")).collect();
    for file in &files {
        store.put_facts(&facts(file, file.as_bytes()), &seen("one", file)).unwrap();
    }
    let listing = store.listing(&project("demo")).unwrap();
    let one_by_one: Vec<_> =
        listing.iter().map(|listed| store.row_named(&listed.sha256, &listed.file).unwrap()).collect();
    assert!(one_by_one.len() == 70 && one_by_one.iter().all(Option::is_some));
    let together: Vec<_> = store.rows_of(&listing).map(Result::unwrap).collect();
    assert_eq!(together, one_by_one);
    assert_eq!(store.rows(&project("demo")).unwrap(), together.into_iter().flatten().collect::<Vec<_>>());
    let pins = store.pins("one", files.iter().map(String::as_str).chain(["other.whl"])).unwrap();
    assert_eq!(pins.len(), 70);
    assert!(files.iter().all(|file| pins[file.as_str()] == Sha256::of(file.as_bytes())));
    assert!(store.pins("two", files.iter().map(String::as_str)).unwrap().is_empty());
}

fn names_that_are_no_file_names_are_refused(site: &Site) {
    let store = site.open();
    let long = format!("demo-{}-py3-none-any.whl", "1".repeat(300));
    for file in
        ["../demo-1.0-x.whl", "demo-1.0-a/b.whl", "demo-1.0-a\0.whl", "demo-1.0-a\n.whl", ".-1-.whl", &long]
    {
        let hostile = Facts { file: file.to_owned(), ..facts("demo-1.0-py3-none-any.whl", b"abc") };
        let outcome = store.put_facts(&hostile, &seen("one", "u"));
        assert!(matches!(outcome, Err(Error::Name { .. })), "{file:?}");
    }
    let no_wheel = Facts { project: None, ..facts("demo-1.0-py3-none-any.whl", b"abc") };
    assert!(matches!(store.put_facts(&no_wheel, &seen("one", "u")), Err(Error::Name { .. })));
    let strange = store.put_facts(&facts("demo-1.0-py3-none-any.whl", b"abc"), &seen("a\0b", "u"));
    assert!(matches!(strange, Err(Error::Name { .. })));
    let mut spooled = store.spool().unwrap();
    spooled.write_all(b"abcd").unwrap();
    let outcome = store.put(spooled, &facts("demo-1.0-py3-none-any.whl", b"abc"), MEMBER, &seen("one", "u"));
    assert!(matches!(outcome, Err(Error::Mismatch { .. })));
    assert_eq!(store.projects(false).unwrap(), []);
}

fn rebuild_gives_the_same_answers(site: &Site) {
    let store = site.open();
    fill(&store);
    let before = answers(&store);
    store.rebuild().unwrap();
    assert_eq!(answers(&store), before);
    drop(store);
    let (code, json) = run_json(site.command().arg("rebuild"));
    assert_eq!((code, json["files"].as_u64()), (Some(0), Some(32)));
    let store = site.open();
    assert_eq!((answers(&store), store.recovery()), (before, None));
    assert!(!site.data().join("catalogue.old").exists());
}

fn incidents_and_reached_upstreams_are_kept(site: &Site) {
    let store = site.open();
    let incident = Incident {
        upstream: Some("one".to_owned()),
        ..Incident::now(IncidentKind::ChangedFile, "demo has other bytes".to_owned())
    };
    store.put_incident(&incident).unwrap();
    store.put_incident(&Incident { time: "2027-01-01T00:00:00Z".to_owned(), ..incident.clone() }).unwrap();
    let other = Incident::now(IncidentKind::HashMismatch, "other".to_owned());
    store.put_incident(&other).unwrap();
    store.put_reached([("one", true), ("two", false)]).unwrap();
    let id = store.site().unwrap();
    let snapshot = "20261130T075300Z-1".parse().unwrap();
    store.note_import("elsewhere", &snapshot).unwrap();
    drop(store);
    let store = site.open();
    assert_eq!(store.incidents().unwrap(), [incident, other]);
    let reached = store.reached().unwrap();
    assert!(reached["one"].failing_since.is_none() && reached["two"].failing_since.is_some());
    assert_eq!(store.site().unwrap(), id);
    assert_eq!(store.imported("elsewhere").unwrap(), Some(snapshot));
}

fn snapshots_and_channels_are_kept(site: &Site) {
    let store = site.open();
    let new = |name: Option<&str>| NewSnapshot {
        reason: "create".to_owned(),
        name: name.map(str::to_owned),
        ..NewSnapshot::default()
    };
    assert_eq!(store.take_snapshot(&new(None)).unwrap(), None, "there is nothing to freeze yet");
    fill(&store);
    let first = store.take_snapshot(&new(Some("first"))).unwrap().unwrap();
    assert_eq!(store.take_snapshot(&new(None)).unwrap(), None, "nothing has changed");
    put(&store, "demo-2.0-py3-none-any.whl", b"more", &seen("one", "https://one.example/2")).unwrap();
    let second = store.take_snapshot(&new(None)).unwrap().unwrap();
    assert!(second > first);
    store.promote("stable", &first).unwrap();
    store.promote("stable", &second).unwrap();
    assert!(matches!(store.remove_snapshot(&second), Err(Error::SnapshotInUse { .. })));
    assert!(matches!(
        store.take_snapshot(&NewSnapshot { always: true, ..new(Some("first")) }),
        Err(Error::SnapshotName { .. })
    ));
    let frozen = store.snapshot(&second).unwrap();
    assert_eq!(frozen.files, store.held_files().unwrap());
    // One that is larger than a piece of it in any backend.
    let many: Vec<SnapshotFile> = (0..12_000)
        .map(|number| SnapshotFile {
            project: project("demo"),
            file: format!("demo-{number:05}-py3-none-any.whl"),
            sha256: Sha256::of(b"more"),
            size: 4,
        })
        .collect();
    let large = store.put_snapshot(&new(None), &many).unwrap().unwrap();
    drop(store);

    let store = site.open();
    assert_eq!(store.snapshot(&second).unwrap(), frozen);
    assert_eq!(store.snapshot(&large).unwrap().files, many);
    let ids: Vec<_> = store.snapshots().into_iter().map(|head| head.id).collect();
    assert_eq!(ids, [first.clone(), second.clone(), large.clone()]);
    assert_eq!(store.find_snapshot("stable"), Some(second.clone()));
    assert_eq!(store.find_snapshot("first"), Some(first.clone()));
    assert_eq!(store.rollback("stable").unwrap(), first);
    store.set_keep_snapshots(1);
    assert_eq!(store.prune_snapshots().unwrap(), std::slice::from_ref(&second));
    assert!(matches!(store.snapshot(&second), Err(Error::NoSnapshot { .. })));
}

fn verify_and_gc_find_what_is_wrong_and_what_is_unnamed(site: &Site) {
    let store = site.open();
    fill(&store);
    let whole = store.verify(&|_, _| {}).unwrap();
    assert_eq!((whole.blobs, whole.sidecars, whole.findings.len()), (31, 32, 0), "{:?}", whole.findings);
    let (lost, orphan) = (Sha256::of(&[7]), Sha256::of(b"orphan"));
    site.remove_blob(&lost);
    site.add_blob(&orphan, "orphan");
    let mut found = store.verify(&|_, _| {}).unwrap();
    assert_eq!(found.orphans, [orphan]);
    let kinds: Vec<_> = found.findings.iter().map(|finding| (finding.kind, finding.sha256)).collect();
    assert_eq!(kinds, [(FindingKind::MissingBlob, lost)]);
    store.repair(&mut found, None).unwrap();
    assert!(!store.row(&lost).unwrap().unwrap().held, "a server says that it is not there");
    assert_eq!(store.verify(&|_, _| {}).unwrap().findings, []);

    let day = Duration::from_hours(24);
    let young = store.gc(day, false).unwrap();
    assert_eq!((young.blobs, young.younger), (0, 1));
    assert_eq!(store.gc(Duration::ZERO, true).unwrap().files, [orphan]);
    let swept = store.gc(Duration::ZERO, false).unwrap();
    assert_eq!((swept.blobs, swept.bytes), (1, 6));
    assert_eq!(store.verify(&|_, _| {}).unwrap().orphans, []);
    assert!(store.row(&Sha256::of(&[8])).unwrap().unwrap().held);
}

/// What one process of several does is seen by the others, without being asked for.
fn others_see_changes(site: &Site) {
    let (one, other) = (site.open(), site.open());
    let before = (
        other.revision(),
        other.project_revision(&project("demo")),
        other.project_revision(&project("torch")),
    );
    fill(&one);
    let new = NewSnapshot { reason: "create".to_owned(), ..NewSnapshot::default() };
    let id = one.take_snapshot(&new).unwrap().unwrap();
    one.promote("stable", &id).unwrap();
    let began = Instant::now();
    let seen = |other: &Store| {
        other.revision() > before.0
            && other.project_revision(&project("demo")) != before.1
            && other.project_revision(&project("torch")) != before.2
            && other.find_snapshot("stable").as_ref() == Some(&id)
    };
    while !seen(&other) {
        assert!(began.elapsed() < SEEN_WITHIN, "the other process has not seen it");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(answers(&other), answers(&one));
    let quiet = other.project_revision(&project("torch"));
    put(&one, "demo-3.0-py3-none-any.whl", b"three", &self::seen("one", "https://one.example/3")).unwrap();
    let began = Instant::now();
    while other.rows(&project("demo")).unwrap().len() != 31
        || other.project_revision(&project("demo")) == quiet
    {
        assert!(began.elapsed() < SEEN_WITHIN);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(other.project_revision(&project("torch")), quiet, "pages of other projects stay");
}

/// Two writers of the same and of different files leave what one would.
fn two_processes_write_at_once(site: &Site) {
    let (one, other) = (site.open(), site.open());
    std::thread::scope(|scope| {
        for store in [&one, &other] {
            for _ in 0..2 {
                scope.spawn(|| fill_quietly(store));
            }
        }
    });
    let alone = Site::embedded();
    let expected = alone.open();
    fill_quietly(&expected);
    assert_eq!(answers(&one), answers(&expected));
    assert_eq!(answers(&other), answers(&expected));
    assert_eq!(one.pinned("one", "demo-1.3-py3-none-any.whl").unwrap(), Some(Sha256::of(&[3])));
    let report = one.verify(&|_, _| {}).unwrap();
    assert_eq!(report.findings, []);
}

/// Takes files in, whoever else does the same.
fn fill_quietly(store: &Store) {
    for number in 0..20_u8 {
        let file = format!("demo-1.{number}-py3-none-any.whl");
        put(store, &file, &[number], &seen("one", &format!("https://one.example/{file}"))).unwrap();
    }
}
