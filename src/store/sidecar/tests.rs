//! A sidecar file says what was written to it, or is refused.

use proptest::prelude::*;

use super::*;
use crate::wheel::ProjectName;

fn facts(file: &str, sha256: Sha256) -> Facts {
    Facts {
        project: "demo".parse::<ProjectName>().ok(),
        version: Some("1.0".to_owned()),
        ..Facts::blank(file.to_owned(), sha256, 3)
    }
}

fn seen_on(upstream: &str) -> Provenance {
    Provenance {
        upstream: upstream.to_owned(),
        url: Some(format!("https://{upstream}.example/f")),
        first_seen: "2026-11-30T00:00:00Z".to_owned(),
        ..Provenance::default()
    }
}

prop_compose! {
    fn any_provenance()(
        upstream in ".{0,12}", url in proptest::option::of(".{0,40}"), first_seen in ".{0,20}",
        upload_time in proptest::option::of(".{0,20}"), yanked in proptest::option::of(".{0,20}"),
        gone_since in proptest::option::of(".{0,20}"), replaced_since in proptest::option::of(".{0,20}"),
    ) -> Provenance {
        Provenance { upstream, url, first_seen, upload_time, yanked, gone_since, replaced_since }
    }
}

prop_compose! {
    fn any_sidecar()(
        files in proptest::collection::vec(
            (".{0,40}", any_provenance(), any::<u64>(), proptest::collection::vec(".{0,20}", 0..3), any::<bool>()), 1..4,
        ),
        digest in any::<[u8; 32]>(), held in any::<bool>(),
    ) -> Sidecar {
        let mut sidecar = Sidecar { held: false, files: Vec::new() };
        for (file, provenance, size, requires_dist, news) in files {
            let facts = Facts { size, requires_dist, ..facts(&file, Sha256(digest)) };
            sidecar.see(&facts, &provenance, held, News { pinned: news, first_at_url: !news });
        }
        sidecar
    }
}

proptest! {
    #[test]
    fn reads_what_it_writes(sidecar in any_sidecar()) {
        let sha256 = sidecar.files[0].facts.sha256;
        let bytes = sidecar.render();
        prop_assert!(serde_json::from_slice::<serde_json::Value>(&bytes).is_ok());
        prop_assert_eq!(Sidecar::parse(&bytes, &sha256).unwrap(), sidecar);
    }

    #[test]
    fn a_row_reads_as_it_is_written(sidecar in any_sidecar()) {
        let row = sidecar.row(&sidecar.files[0]);
        let json = serde_json::to_string(&row).unwrap();
        prop_assert_eq!(serde_json::from_str::<Row>(&json).unwrap(), row);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Sidecar::parse(&bytes, &Sha256([0; 32])).is_err());
        let headed = [HEAD.as_bytes(), &bytes].concat();
        prop_assert!(Sidecar::parse(&headed, &Sha256([0; 32])).is_err());
    }
}

#[test]
fn a_flipped_bit_anywhere_is_seen() {
    let sha256 = Sha256([7; 32]);
    let mut sidecar = Sidecar { held: true, files: Vec::new() };
    sidecar.see(&facts("demo-1.0-py3-none-any.whl", sha256), &seen_on("one"), true, News::default());
    let bytes = sidecar.render();
    for at in 0..bytes.len() - 1 {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1;
        assert!(Sidecar::parse(&flipped, &sha256).is_err(), "byte {at}");
    }
    for len in 0..bytes.len() - 1 {
        assert!(Sidecar::parse(&bytes[..len], &sha256).is_err(), "cut to {len} bytes");
    }
    assert!(Sidecar::parse(&bytes, &Sha256([8; 32])).is_err(), "another digest");
}

#[test]
fn the_first_upstream_alone_has_a_say_in_yanks() {
    let demo = facts("demo-1.0-py3-none-any.whl", Sha256([7; 32]));
    let mut sidecar = Sidecar { held: false, files: Vec::new() };
    sidecar.see(&demo, &seen_on("one"), true, News::default());
    let yanked = |upstream| Provenance { yanked: Some("bad".to_owned()), ..seen_on(upstream) };
    sidecar.see(&demo, &yanked("two"), true, News::default());
    assert_eq!(sidecar.files[0].provenance.yanked, None);
    sidecar.see(&demo, &yanked("one"), true, News::default());
    assert_eq!(sidecar.files[0].provenance.yanked.as_deref(), Some("bad"));
    let upstreams: Vec<_> = sidecar.files[0].sightings.iter().map(|seen| &seen.upstream).collect();
    assert_eq!(upstreams, ["one", "two"]);
}

#[test]
fn facts_without_bytes_never_replace_those_of_a_held_file() {
    let demo = facts("demo-1.0-py3-none-any.whl", Sha256([7; 32]));
    let poorer = Facts { requires_dist: vec!["x".to_owned()], ..demo.clone() };
    let mut sidecar = Sidecar { held: false, files: Vec::new() };
    sidecar.see(&poorer, &seen_on("one"), false, News::default());
    sidecar.see(&demo, &seen_on("one"), true, News::default());
    assert_eq!(*sidecar.files[0].facts, demo);
    sidecar.see(&poorer, &seen_on("one"), false, News::default());
    assert_eq!(*sidecar.files[0].facts, demo);
    assert!(sidecar.held);
}
