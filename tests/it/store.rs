//! What the store promises, through its interface and through the real binary.

use std::io::Write as _;
use std::path::Path;

use jetwheel::digest::Sha256;
use jetwheel::store::{Error, Incident, IncidentKind, Provenance, Put, Row, Store};
use jetwheel::wheel::{Facts, GpuClass, ProjectName};

const MEMBER: &[u8] = b"Metadata-Version: 2.1\nName: demo\n";

/// Facts of a wheel with these bytes; only their keeping is tested here, so they say little.
fn facts(file: &str, bytes: &[u8]) -> Facts {
    let (project, rest) = file.split_once('-').unwrap();
    Facts {
        file: file.to_owned(),
        sha256: Sha256::of(bytes),
        size: bytes.len() as u64,
        project: Some(project.parse().unwrap()),
        version: Some(rest.split_once('-').unwrap().0.to_owned()),
        tags: vec!["py3-none-any".to_owned()],
        requires_python: Some(">=3.8".to_owned()),
        requires_dist: vec!["numpy".to_owned()],
        provides_extra: Vec::new(),
        metadata_sha256: Some(Sha256::of(MEMBER)),
        gpu: GpuClass::None,
        members: Vec::new(),
        compilers: Vec::new(),
        images: std::collections::BTreeMap::new(),
        cuda_sources: 0,
        needed_dlopen: Vec::new(),
        damage: Vec::new(),
    }
}

fn seen(upstream: &str, url: &str) -> Provenance {
    Provenance {
        upstream: upstream.to_owned(),
        url: Some(url.to_owned()),
        first_seen: "2026-11-30T00:00:00Z".to_owned(),
        ..Provenance::default()
    }
}

fn put(store: &Store, file: &str, bytes: &[u8], provenance: &Provenance) -> Result<Put, Error> {
    let mut spooled = store.spool().unwrap();
    spooled.write_all(bytes).unwrap();
    store.put(spooled, &facts(file, bytes), MEMBER, provenance)
}

fn project(name: &str) -> ProjectName {
    name.parse().unwrap()
}

/// Everything that the store answers, for comparisons.
fn answers(store: &Store) -> Vec<(ProjectName, Vec<Row>, (u64, u64))> {
    let held = store.projects(true).unwrap();
    let all = store.projects(false).unwrap();
    assert!(held.iter().all(|project| all.contains(project)));
    all.into_iter()
        .map(|project| {
            let rows = store.rows(&project).unwrap();
            for row in &rows {
                assert!(store.row_named(&row.facts.sha256, &row.facts.file).unwrap().as_ref() == Some(row));
                if row.held {
                    let bytes = std::fs::read(store.blob(&row.facts.sha256)).unwrap();
                    assert_eq!(Sha256::of(&bytes), row.facts.sha256);
                    assert_eq!(store.metadata(&row.facts.sha256).unwrap().as_deref(), Some(MEMBER));
                }
            }
            let counts = store.count(&project).unwrap();
            (project, rows, counts)
        })
        .collect()
}

/// A store with some of everything.
fn fill(store: &Store) {
    for number in 0..30_u8 {
        let file = format!("demo-1.{number}-py3-none-any.whl");
        let url = format!("https://one.example/{file}");
        assert_eq!(put(store, &file, &[number], &seen("one", &url)).unwrap(), Put::New);
    }
    let refused = facts("torch-2.9.1-py3-none-any.whl", b"cpu");
    store.put_facts(&refused, &seen("one", "https://one.example/torch")).unwrap();
    put(store, "torch-2.9.1-py3-none-any.whl", b"cuda", &seen("two", "https://two.example/torch")).unwrap();
}

#[test]
fn gives_back_what_was_put() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let before = (store.revision(), store.project_revision(&project("demo")));
    let (file, url) = ("demo-1.0-py3-none-any.whl", "https://one.example/demo");
    assert_eq!(put(&store, file, b"abc", &seen("one", url)).unwrap(), Put::New);
    assert_eq!(put(&store, file, b"abc", &seen("one", url)).unwrap(), Put::Known);
    let sha256 = Sha256::of(b"abc");
    let row = store.row(&sha256).unwrap().unwrap();
    assert_eq!(*row.facts, facts(file, b"abc"));
    assert_eq!(row.provenance, seen("one", url));
    assert!(row.held);
    assert_eq!(store.rows(&project("demo")).unwrap(), [row.clone()]);
    assert_eq!(store.row_by_url(url).unwrap(), Some(row));
    assert_eq!(store.row_by_url("https://one.example/other").unwrap(), None);
    assert_eq!(store.metadata(&sha256).unwrap().as_deref(), Some(MEMBER));
    assert_eq!(std::fs::read(store.blob(&sha256)).unwrap(), b"abc");
    assert!(store.blob(&sha256).ends_with(format!("blobs/sha256/ba/{sha256}.whl")));
    assert_eq!(store.row(&Sha256::of(b"x")).unwrap(), None);
    assert_eq!(store.projects(true).unwrap(), [project("demo")]);
    assert!(store.revision() > before.0);
    assert_ne!(store.project_revision(&project("demo")), before.1);
}

#[test]
fn a_refused_wheel_leaves_its_facts_and_is_held_when_its_bytes_come() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let file = "demo-1.0-py3-none-any.whl";
    let provenance = seen("one", "https://one.example/demo");
    assert_eq!(store.put_facts(&facts(file, b"abc"), &provenance).unwrap(), Put::New);
    assert_eq!(store.put_facts(&facts(file, b"abc"), &provenance).unwrap(), Put::Known);
    assert!(!store.rows(&project("demo")).unwrap()[0].held);
    assert!(!store.blob(&Sha256::of(b"abc")).exists());
    assert_eq!(store.projects(true).unwrap(), []);
    assert_eq!(store.projects(false).unwrap(), [project("demo")]);
    assert_eq!(put(&store, file, b"abc", &provenance).unwrap(), Put::New);
    assert!(store.rows(&project("demo")).unwrap()[0].held);
    assert_eq!(store.count(&project("demo")).unwrap(), (1, 1));
    // Facts that come later do not take the bytes away.
    assert_eq!(store.put_facts(&facts(file, b"abc"), &provenance).unwrap(), Put::Known);
    assert!(store.row(&Sha256::of(b"abc")).unwrap().unwrap().held);
}

#[test]
fn one_name_with_two_digests_is_two_rows_and_the_first_stays_pinned() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
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
    std::fs::remove_dir_all(dir.path().join("catalogue")).unwrap();
    let store = Store::open(dir.path()).unwrap();
    check(&store);
    assert_eq!(answers(&store), before);
}

/// An index that lists good bytes under a wrong name first must not hide them from another index.
#[test]
fn one_digest_with_two_names_is_two_rows() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    put(&store, "wrong-1.0-py3-none-any.whl", b"abc", &seen("one", "https://one.example/w")).unwrap();
    put(&store, "demo-1.0-py3-none-any.whl", b"abc", &seen("two", "https://two.example/d")).unwrap();
    for name in ["wrong", "demo"] {
        let rows = store.rows(&project(name)).unwrap();
        assert_eq!(rows.len(), 1, "{name}");
        assert_eq!(rows[0].facts.project, Some(project(name)));
    }
}

#[test]
fn yanks_follow_the_upstream_and_first_sight_stays() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
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

#[test]
fn newest_version_first() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    for version in ["2.5.0", "2.10.0", "2.5.0a0+nv24.08"] {
        put(&store, &format!("demo-{version}-py3-none-any.whl"), version.as_bytes(), &seen("one", version))
            .unwrap();
    }
    let rows = store.rows(&project("demo")).unwrap();
    let versions: Vec<_> = rows.iter().filter_map(|row| row.facts.version.as_deref()).collect();
    assert_eq!(versions, ["2.10.0", "2.5.0", "2.5.0a0+nv24.08"]);
}

#[test]
fn names_that_are_no_file_names_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
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

#[test]
fn incidents_are_kept_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let incident = Incident {
        upstream: Some("one".to_owned()),
        ..Incident::now(IncidentKind::ChangedFile, "demo has other bytes".to_owned())
    };
    store.put_incident(&incident).unwrap();
    store.put_incident(&Incident { time: "2027-01-01T00:00:00Z".to_owned(), ..incident.clone() }).unwrap();
    // A power cut leaves half a line.
    let log = dir.path().join("incidents.jsonl");
    let mut file = std::fs::OpenOptions::new().append(true).open(&log).unwrap();
    file.write_all(b"{\"time\":\"20").unwrap();
    let other = Incident::now(IncidentKind::HashMismatch, "other".to_owned());
    store.put_incident(&other).unwrap();
    assert_eq!(store.incidents().unwrap(), [incident, other]);
}

#[test]
fn a_lost_catalogue_is_made_anew_with_the_same_answers() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    fill(&store);
    let before = answers(&store);
    drop(store);
    let store = Store::open(dir.path()).unwrap();
    assert_eq!((answers(&store), store.recovery()), (before.clone(), None));
    drop(store);
    std::fs::remove_dir_all(dir.path().join("catalogue")).unwrap();
    let store = Store::open(dir.path()).unwrap();
    assert_eq!(answers(&store), before);
    assert_eq!(store.recovery().unwrap().files, 32);
    assert_eq!(store.incidents().unwrap()[0].kind, IncidentKind::CatalogueRebuilt);
}

/// A catalogue from before the last change is whole in itself, yet old.
#[test]
fn an_older_catalogue_is_found_out() {
    for orderly in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let (catalogue, old) = (dir.path().join("catalogue"), dir.path().join("old"));
        let store = Store::open(dir.path()).unwrap();
        fill(&store);
        drop(store);
        copy(&catalogue, &old);
        let store = Store::open(dir.path()).unwrap();
        for number in 0..3 {
            put(&store, &format!("late-1.{number}-py3-none-any.whl"), &[number, 1], &seen("one", "late"))
                .unwrap();
        }
        let before = answers(&store);
        drop(store);
        std::fs::remove_dir_all(&catalogue).unwrap();
        copy(&old, &catalogue);
        if !orderly {
            std::fs::remove_file(dir.path().join("CLEAN")).unwrap();
        }
        let store = Store::open(dir.path()).unwrap();
        assert_eq!(answers(&store), before, "orderly: {orderly}");
        assert!(store.recovery().is_some());
    }
}

/// One sidecar may be ahead of its row when a process is killed: that is no damage.
#[test]
fn a_sidecar_without_its_row_is_made_up_for() {
    let dir = tempfile::tempdir().unwrap();
    let (catalogue, old) = (dir.path().join("catalogue"), dir.path().join("old"));
    let store = Store::open(dir.path()).unwrap();
    fill(&store);
    drop(store);
    copy(&catalogue, &old);
    let store = Store::open(dir.path()).unwrap();
    put(&store, "late-1.0-py3-none-any.whl", b"late", &seen("one", "late")).unwrap();
    let before = answers(&store);
    drop(store);
    std::fs::remove_dir_all(&catalogue).unwrap();
    copy(&old, &catalogue);
    std::fs::remove_file(dir.path().join("CLEAN")).unwrap();
    let store = Store::open(dir.path()).unwrap();
    assert_eq!((answers(&store), store.recovery()), (before, None));
}

/// Copies a folder of files.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()));
        } else {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

#[test]
fn a_damaged_catalogue_is_made_anew_with_the_same_answers() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    fill(&store);
    let before = answers(&store);
    drop(store);
    let db = dir.path().join("catalogue/db");
    let (whole, clean) = (std::fs::read(&db).unwrap(), std::fs::read(dir.path().join("CLEAN")).unwrap());
    let catalogue = dir.path().join("catalogue");
    let pristine = dir.path().join("pristine");
    copy(&catalogue, &pristine);
    let used = whole.iter().rposition(|&byte| byte != 0).unwrap();
    let flips = (0..20).map(|step| {
        let mut damaged = whole.clone();
        damaged[used * step / 20] ^= 0x10;
        (format!("flipped at {}", used * step / 20), damaged)
    });
    let cuts = (0..8).map(|step| {
        let len = used * step / 8;
        (format!("cut to {len}"), whole[..len].to_vec())
    });
    let mut told = 0;
    for (what, damaged) in flips.chain(cuts) {
        for orderly in [true, false] {
            std::fs::remove_dir_all(&catalogue).unwrap();
            copy(&pristine, &catalogue);
            std::fs::write(&db, &damaged).unwrap();
            if orderly {
                std::fs::write(dir.path().join("CLEAN"), &clean).unwrap();
            } else {
                std::fs::remove_file(dir.path().join("CLEAN")).unwrap();
            }
            let store = Store::open(dir.path()).unwrap();
            assert_eq!(answers(&store), before, "{what}, orderly: {orderly}");
            told += usize::from(store.recovery().is_some());
            drop(store);
        }
    }
    // A flip in a byte that sled no longer reads changes nothing, and is not told.
    assert!(told >= 20, "only {told} of 56 damages were noticed");
}

#[test]
fn a_second_process_is_told_who_has_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let error = Store::open(dir.path()).unwrap_err();
    assert!(matches!(&error, Error::InUse { pid: Some(pid), .. } if *pid == std::process::id()), "{error}");
    drop(store);
    Store::open(dir.path()).unwrap();
}

#[test]
fn a_folder_of_another_kind_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("spool")).unwrap();
    std::fs::write(dir.path().join("spool/mine"), "precious").unwrap();
    assert!(matches!(Store::open(dir.path()), Err(Error::Format { .. })));
    assert!(dir.path().join("spool/mine").exists());
    let newer = tempfile::tempdir().unwrap();
    std::fs::write(newer.path().join("FORMAT"), "2\n").unwrap();
    let error = Store::open(newer.path()).unwrap_err().to_string();
    assert!(error.ends_with("is 2; this program reads format 1"), "{error}");
}
