//! What is told where nothing fits.

use jetwheel::resolve::{Failure, Metadata, Request, resolve};

use super::catalogue::{Catalogue, reason, requirements, target};

/// The explanation for a request on a JetPack 6.2 Orin.
fn told(catalogue: &mut Catalogue, asked: &[&str], constraints: &[&str]) -> String {
    let request = Request {
        requirements: requirements(asked),
        constraints: requirements(constraints),
        ..Request::default()
    };
    match resolve(&request, &target("3.10"), catalogue) {
        Err(Failure::Unsatisfiable(explanation)) => explanation.text,
        other => panic!("{other:?}"),
    }
}

/// torch of three kinds: refused for its kernels, fitting, and a vendor's pre-release.
fn torches() -> Catalogue {
    let mut catalogue = Catalogue::default();
    for version in ["2.9.1", "2.9.0"] {
        catalogue.add("torch", version, &["numpy"]).refused = Some(reason(
            "no-kernel-image",
            "built for sm_80 and sm_90, wanted sm_87",
            "use the wheels of the jetson-ai-lab index for JetPack 6",
        ));
    }
    catalogue.add("torch", "2.8.0", &["numpy"]);
    catalogue.add("torch", "2.5.0a0+872d972e41.nv24.08", &["numpy"]);
    catalogue.add("torchvision", "0.24.1", &["torch==2.9.1"]);
    catalogue.add("torchvision", "0.23.0", &["torch==2.8.0"]);
    catalogue.add("numpy", "1.26.4", &[]);
    catalogue.add("numpy", "2.3.0", &[]).requires_python = Some(">=3.11".to_owned());
    catalogue
}

#[test]
fn refused_wheels_are_told_with_their_reason_and_what_would_do() {
    insta::assert_snapshot!(told(&mut torches(), &["torch>=2.9", "torchvision"], &[]), @r"
    Nothing satisfies torch>=2.9 and torchvision for orin-jp6.2.
    torch 2.9.1 and 2.9.0 are there, but refused for orin-jp6.2: built for sm_80 and sm_90, wanted sm_87. Use the wheels of the jetson-ai-lab index for JetPack 6.
    This would work: torch==2.8.0 with torchvision==0.23.0.
    ");
}

#[test]
fn a_dependency_that_was_refused_is_told() {
    insta::assert_snapshot!(told(&mut torches(), &["torchvision==0.24.1"], &[]), @r"
    Nothing satisfies torchvision==0.24.1 for orin-jp6.2.
    torchvision 0.24.1 needs torch==2.9.1.
    torch 2.9.1 is there, but refused for orin-jp6.2: built for sm_80 and sm_90, wanted sm_87. Use the wheels of the jetson-ai-lab index for JetPack 6.
    This would work: torchvision==0.23.0.
    ");
}

#[test]
fn a_version_that_does_not_exist_is_told() {
    insta::assert_snapshot!(told(&mut torches(), &["torch==9.9"], &[]), @r"
    Nothing satisfies torch==9.9 for orin-jp6.2.
    No version of torch satisfies ==9.9; known: 2.8.0 and 2.5.0a0+872d972e41.nv24.08.
    This would work: torch==2.8.0.
    ");
    insta::assert_snapshot!(told(&mut torches(), &["pytorch"], &[]), @r"
    Nothing satisfies pytorch for orin-jp6.2.
    No project pytorch is known here.
    ");
}

#[test]
fn a_vendor_pre_release_is_named() {
    insta::assert_snapshot!(told(&mut torches(), &["torch==2.5.0"], &[]), @r"
    Nothing satisfies torch==2.5.0 for orin-jp6.2.
    No version of torch satisfies ==2.5.0; known: 2.8.0 and 2.5.0a0+872d972e41.nv24.08.
    torch 2.5.0a0+872d972e41.nv24.08 is a pre-release of what is asked, so ==2.5.0 leaves it out: ask for torch==2.5.0a0+872d972e41.nv24.08 to have it.
    This would work: torch==2.8.0.
    ");
    let request = Request { requirements: requirements(&["torch>=2.4"]), ..Request::default() };
    let mut catalogue = torches();
    catalogue.add("torch", "2.10.0a0+b558c986e8.nv25.11", &[]);
    let resolution = resolve(&request, &target("3.10"), &mut catalogue).unwrap();
    insta::assert_snapshot!(resolution.notes.join("\n"), @"torch 2.10.0a0+b558c986e8.nv25.11 was passed over for 2.8.0, since it is a pre-release: ask for torch==2.10.0a0+b558c986e8.nv25.11 to have it");
}

#[test]
fn yanks_pythons_tags_and_constraints_are_told() {
    let mut catalogue = torches();
    catalogue.add("numpy", "1.27.0", &[]).yanked = Some("broken on aarch64".to_owned());
    catalogue
        .add_file("numpy", "1.28.0", "numpy-1.28.0-cp39-cp39-linux_aarch64.whl", Metadata::default())
        .tag_priority = None;
    insta::assert_snapshot!(told(&mut catalogue, &["torch", "numpy>=1.27"], &[]), @r"
    Nothing satisfies torch and numpy>=1.27 for orin-jp6.2.
    numpy 2.3.0 needs Python >=3.11; orin-jp6.2 has 3.10.12.
    numpy 1.28.0 is built for another Python or platform: numpy-1.28.0-cp39-cp39-linux_aarch64.whl.
    numpy 1.27.0 was yanked (broken on aarch64): only a == in the request takes a yanked wheel.
    This would work: numpy==1.26.4 with torch==2.8.0.
    ");
    insta::assert_snapshot!(told(&mut torches(), &["torch==2.8.0"], &["numpy<1.20"]), @r"
    Nothing satisfies torch==2.8.0 for orin-jp6.2.
    torch 2.8.0 needs numpy.
    The constraint numpy<1.20 applies.
    No version of numpy satisfies <1.20; known: 1.26.4.
    This would work without the constraint on numpy: torch==2.8.0.
    ");
}

#[test]
fn a_conflict_is_told_by_who_needs_what() {
    let mut catalogue = Catalogue::default();
    catalogue.add("onnx", "1.0", &["protobuf<4"]);
    catalogue.add("onnx", "2.0", &["protobuf<4"]);
    catalogue.add("tensorboard", "1.0", &["protobuf>=5"]);
    for version in ["3.20", "4.1", "5.0", "5.1"] {
        catalogue.add("protobuf", version, &[]);
    }
    insta::assert_snapshot!(told(&mut catalogue, &["onnx", "tensorboard"], &[]), @r"
    Nothing satisfies onnx and tensorboard for orin-jp6.2.
    Every onnx needs protobuf<4.
    tensorboard 1.0 needs protobuf>=5.
    This would work without onnx: tensorboard==1.0.
    ");
}

#[test]
fn what_a_request_cannot_have_is_an_error_that_names_it() {
    let error = |text: &str| {
        let request = Request { requirements: requirements(&[text]), ..Request::default() };
        let error = resolve(&request, &target("3.10"), &mut torches()).unwrap_err();
        let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
        format!("{error}{}", source.unwrap_or_default())
    };
    insta::assert_snapshot!(error("torch; platform_version >= '5'"), @"torch; platform_version >= '5': the marker depends on platform_version, which the profile of orin-jp6.2 does not state");
    insta::assert_snapshot!(error("torch @ https://example.org/torch-1.0-py3-none-any.whl"), @"torch @ https://example.org/torch-1.0-py3-none-any.whl: a URL is not taken; add the wheel to the mirror and ask for its version");
}

#[test]
fn a_wheel_with_a_url_or_an_unknown_marker_value_is_left_out() {
    let mut catalogue = Catalogue::default();
    catalogue.add("a", "3.0", &["b @ https://example.org/b.whl"]);
    catalogue.add("a", "2.0", &["b ; platform_version == '1'"]);
    catalogue.add("b", "1.0", &[]);
    insta::assert_snapshot!(told(&mut catalogue, &["a"], &[]), @r#"
    Nothing satisfies a for orin-jp6.2.
    a 3.0 cannot be used: it needs b @ https://example.org/b.whl, a URL; only versions from this index are used.
    a 2.0 cannot be used: its requirement "b ; platform_version == '1'" depends on platform_version, which the profile of orin-jp6.2 does not state.
    "#);
    catalogue.add("a", "1.0", &[]);
    let request = Request { requirements: requirements(&["a"]), ..Request::default() };
    let resolution = resolve(&request, &target("3.10"), &mut catalogue).unwrap();
    assert_eq!(resolution.packages[0].candidate.version_text, "1.0");
}
