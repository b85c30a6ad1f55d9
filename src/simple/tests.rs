//! Pages read back, odd pages, and the exact form of ours.

use proptest::prelude::*;

use super::*;

fn digest() -> impl Strategy<Value = String> {
    "[0-9a-f]{64}"
}

/// Texts as attributes hold them: any letters, without control characters and without blanks around them.
fn words() -> impl Strategy<Value = String> {
    "[^\\p{C}\\s]([^\\p{C}]{0,20}[^\\p{C}\\s])?"
}

prop_compose! {
    fn file()(
        stem in "[A-Za-z0-9_]{1,8}-[0-9]{1,3}\\.[0-9]{1,3}(\\+[a-z0-9]{1,6})?-py3-none-any",
        folder in "(\\.\\./){0,2}[a-z0-9&]{0,5}",
        query in "(\\?[a-z]=[a-z%&]{1,5})?",
        sha256 in proptest::option::of(digest()),
        requires_python in proptest::option::of(words()),
        yanked in proptest::option::of(prop_oneof![Just(String::new()), words()]),
        metadata in proptest::option::of(proptest::option::of(any::<[u8; 32]>())),
    ) -> FileLink {
        let filename = format!("{stem}.whl");
        FileLink {
            url: format!("{folder}/{}{query}", filename.replace('+', "%2B")),
            filename,
            hashes: sha256.into_iter().map(|digest| ("sha256".to_owned(), digest)).collect(),
            requires_python,
            size: None,
            upload_time: None,
            yanked,
            core_metadata: match metadata {
                None => CoreMetadata::Absent,
                Some(None) => CoreMetadata::Offered,
                Some(Some(digest)) => CoreMetadata::Hashed(Sha256(digest)),
            },
        }
    }
}

prop_compose! {
    fn page()(
        name in proptest::option::of("[a-z0-9]([a-z0-9-]{0,5}[a-z0-9])?"),
        files in proptest::collection::vec(file(), 0..5),
        status in proptest::option::of(("(archived|quarantined|deprecated)", proptest::option::of(words()))),
    ) -> ProjectPage {
        ProjectPage { name: name.and_then(|name| name.parse().ok()), files, status }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn html_reads_back_what_it_renders(page in page()) {
        let parsed = parse_html(&render_html(&page));
        prop_assert_eq!(parsed, ParsedPage { page, base: None, dropped: 0 });
    }

    #[test]
    fn json_reads_back_what_it_renders(
        page in page(),
        size in any::<u64>(),
        name in "[a-z0-9]([a-z0-9-]{0,5}[a-z0-9])?",
        md5 in "[0-9a-f]{32}",
    ) {
        let mut page = page;
        page.name = name.parse().ok();
        for file in &mut page.files {
            file.size = Some(size);
            file.upload_time = Some("2026-11-30T12:00:00.123456Z".to_owned());
            file.hashes.insert("md5".to_owned(), md5.clone());
        }
        let parsed = parse_json(render_json(&page).as_bytes()).unwrap();
        prop_assert_eq!(parsed, ParsedPage { page, base: None, dropped: 0 });
    }

    #[test]
    fn lists_read_back(names in proptest::collection::btree_set("[a-z0-9]([a-z0-9-]{0,5}[a-z0-9])?", 0..9)) {
        let names: std::collections::BTreeSet<ProjectName> = names.iter().map(|name| name.parse().unwrap()).collect();
        let names: Vec<ProjectName> = names.into_iter().collect();
        prop_assert_eq!(&parse_list_html(&render_list_html(&names)), &names);
        prop_assert_eq!(&parse_list_json(render_list_json(&names).as_bytes()).unwrap(), &names);
    }

    #[test]
    fn no_text_makes_a_parser_panic(text in "\\PC{0,200}", markup in "[<>a-z=\"'&#;/! -]{0,200}") {
        parse_html(&text);
        parse_html(&markup);
        parse_list_html(&markup);
        let _any = parse_json(text.as_bytes());
        let _any = parse_list_json(text.as_bytes());
    }
}

/// A page of devpi-server 6.20.3: relative links, raw `+`, the index's name before each anchor.
#[test]
fn reads_a_page_of_devpi() {
    let text = r#"<!DOCTYPE html><html><head><title>jp6/cu126: links for Demo.Pkg</title></head><body>
        <h1>jp6/cu126: links for demo-pkg</h1>
        jp6/cu126 <a href="../../+f/dd4/cb03a266d2ca1/demo_pkg-1.0+cu126-cp310-cp310-linux_aarch64.whl#sha256=DD4CB03A266D2CA1DD4CB03A266D2CA1DD4CB03A266D2CA1DD4CB03A266D2CA1" data-requires-python="&gt;=3.8">demo_pkg</a><br/>
        root/pypi <a href="../../../root/pypi/+f/abc/0123456789abc/demo_pkg-1.0.tar.gz#sha256=abc">x</a><br/>
        root/pypi <a href="../">up</a></body></html>"#;
    let parsed = parse_html(text);
    assert_eq!(parsed.dropped, 1);
    assert_eq!(parsed.page.name.unwrap().as_str(), "demo-pkg");
    let [wheel, source] = parsed.page.files.as_slice() else { panic!("{:?}", parsed.page.files) };
    assert_eq!(wheel.filename, "demo_pkg-1.0+cu126-cp310-cp310-linux_aarch64.whl");
    assert_eq!(wheel.url, "../../+f/dd4/cb03a266d2ca1/demo_pkg-1.0+cu126-cp310-cp310-linux_aarch64.whl");
    assert_eq!(wheel.hashes["sha256"], "dd4cb03a266d2ca1".repeat(4));
    assert_eq!(wheel.requires_python.as_deref(), Some(">=3.8"));
    assert_eq!((source.filename.as_str(), source.hashes.len()), ("demo_pkg-1.0.tar.gz", 0));
}

/// A listing of a web server, as at developer.download.nvidia.com, and a page like those of download.pytorch.org.
#[test]
fn reads_flat_listings_and_percent_encoded_links() {
    let text = r#"<html><head><base href="https://host.test/whl/"></head><body><a href="..">Parent</a> <A HREF='pytorch/'>pytorch/</A>
        <a href="torch-2.5.0a0%2B872d972e41.nv24.08-cp310-cp310-linux_aarch64.whl">torch-2.5.0a0..&gt;</a>
        <a href="/whl/cu126/torch-2.9.1%2Bcu126-cp310-cp310-manylinux_2_28_aarch64.whl?sig=a&amp;b=c#md5=d41d8cd98f00b204e9800998ecf8427e&amp;sha256=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855&amp;egg=x" data-dist-info-metadata="sha256=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" data-yanked>t</a>"#;
    let parsed = parse_html(text);
    assert_eq!((parsed.base.as_deref(), parsed.dropped), (Some("https://host.test/whl/"), 2));
    let [listed, linked] = parsed.page.files.as_slice() else { panic!("{:?}", parsed.page.files) };
    assert_eq!(listed.filename, "torch-2.5.0a0+872d972e41.nv24.08-cp310-cp310-linux_aarch64.whl");
    assert_eq!(linked.url, "/whl/cu126/torch-2.9.1%2Bcu126-cp310-cp310-manylinux_2_28_aarch64.whl?sig=a&b=c");
    assert_eq!(linked.sha256(), Some(Sha256::of(b"")));
    assert_eq!(linked.core_metadata, CoreMetadata::Hashed(Sha256::of(b"")));
    assert_eq!(linked.yanked.as_deref(), Some(""));
}

/// What indexes write where they know nothing: bandersnatch an empty time, others `null` (measured with pip and uv).
#[test]
fn reads_json_with_odd_values() {
    let text = br#"{"meta": {"api-version": "1.0"}, "name": "Demo", "files": [
        {"filename": "demo-1.0-py3-none-any.whl", "url": "demo-1.0-py3-none-any.whl", "yanked": null, "size": null, "upload-time": "",
         "requires-python": "", "hashes": {}, "core-metadata": false},
        {"filename": "demo-1.1-py3-none-any.whl", "url": "a/demo-1.1-py3-none-any.whl#x", "yanked": "bad", "dist-info-metadata": true},
        {"filename": "../demo-1.2-py3-none-any.whl", "url": "x"}, {"filename": 7}, null, "text",
        {"url": "demo-1.3-py3-none-any.whl", "hashes": null, "yanked": ""}], "alternate-locations": [], "unknown": {}}"#;
    let parsed = parse_json(text).unwrap();
    assert_eq!(parsed.dropped, 4);
    let names: Vec<&str> = parsed.page.files.iter().map(|file| file.filename.as_str()).collect();
    assert_eq!(
        names,
        ["demo-1.0-py3-none-any.whl", "demo-1.1-py3-none-any.whl", "demo-1.3-py3-none-any.whl"]
    );
    assert_eq!(parsed.page.files[0], FileLink::new("demo-1.0-py3-none-any.whl", "demo-1.0-py3-none-any.whl"));
    assert_eq!(parsed.page.files[1].yanked.as_deref(), Some("bad"));
    assert_eq!(parsed.page.files[1].core_metadata, CoreMetadata::Offered);
    assert_eq!(parsed.page.files[2].yanked, None);

    assert!(parse_json(br#"{"meta": {"api-version": "2.0"}, "files": []}"#).is_err());
    assert!(parse_json(b"<html>").is_err());
}

/// Expected order and merging from `packaging.version`: 1.0.0 equals 1.0, a local label sorts above its release.
#[test]
fn lists_each_version_once_in_order() {
    let files = [
        "demo-1.10-py3-none-any.whl",
        "demo-1.0.0+cu1-py3-none-any.whl",
        "demo-1.0-py3-none-any.whl",
        "demo-1.0.0.tar.gz",
        "demo-1.9rc1-py3-none-any.whl",
    ];
    let page = ProjectPage {
        files: files.iter().map(|name| FileLink::new(*name, *name)).collect(),
        ..ProjectPage::default()
    };
    let value: serde_json::Value = serde_json::from_str(&render_json(&page)).unwrap();
    assert_eq!(value["versions"], serde_json::json!(["1.0", "1.0.0+cu1", "1.9rc1", "1.10"]));
    assert_eq!(value["name"], "demo");
}

#[test]
fn renders_the_whole_page() {
    let mut file = FileLink::new(
        "demo-1.0+cu126-cp310-cp310-linux_aarch64.whl",
        "../../files/a/demo-1.0%2Bcu126-cp310-cp310-linux_aarch64.whl",
    );
    file.hashes.insert("sha256".to_owned(), Sha256::of(b"").to_string());
    file.requires_python = Some(">=3.8,<4".to_owned());
    file.yanked = Some("bad \"build\" <x>".to_owned());
    file.core_metadata = CoreMetadata::Hashed(Sha256::of(b""));
    let page = ProjectPage {
        name: "demo".parse().ok(),
        files: vec![file],
        status: Some(("quarantined".to_owned(), Some("no kernels & no PTX".to_owned()))),
    };
    insta::assert_snapshot!(render_html(&page), @r#"
<!DOCTYPE html>
<html>
  <head>
    <meta charset="utf-8">
    <meta name="pypi:repository-version" content="1.4">
    <meta name="pypi:project-status" content="quarantined">
    <meta name="pypi:project-status-reason" content="no kernels &amp; no PTX">
    <title>Links for demo</title>
  </head>
  <body>
    <h1>Links for demo</h1>
    <a href="../../files/a/demo-1.0%2Bcu126-cp310-cp310-linux_aarch64.whl#sha256=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" data-requires-python="&gt;=3.8,&lt;4" data-core-metadata="sha256=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" data-dist-info-metadata="sha256=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" data-yanked="bad &quot;build&quot; &lt;x&gt;">demo-1.0+cu126-cp310-cp310-linux_aarch64.whl</a><br>
  </body>
</html>
"#);
    insta::assert_snapshot!(render_json(&page), @r#"{"meta":{"api-version":"1.4"},"name":"demo","versions":["1.0+cu126"],"files":[{"filename":"demo-1.0+cu126-cp310-cp310-linux_aarch64.whl","url":"../../files/a/demo-1.0%2Bcu126-cp310-cp310-linux_aarch64.whl","hashes":{"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},"requires-python":">=3.8,<4","yanked":"bad \"build\" <x>","core-metadata":{"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}}],"project-status":{"status":"quarantined","reason":"no kernels & no PTX"}}"#);
    insta::assert_snapshot!(render_list_html(&["demo".parse().unwrap()]), @r#"
<!DOCTYPE html>
<html>
  <head>
    <meta charset="utf-8">
    <meta name="pypi:repository-version" content="1.4">
    <title>Simple index</title>
  </head>
  <body>
    <h1>Simple index</h1>
    <a href="demo/">demo</a><br>
  </body>
</html>
"#);
}
