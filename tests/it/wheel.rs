//! What inspecting yields: file names and tags against `packaging`, wheels against the survey, hostile zips.

use std::collections::BTreeSet;

use jetwheel::wheel::{SupportedTags, WheelFilename};
use serde_json::Value;

use crate::support::data;

fn json(path: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(data(path)).unwrap()).unwrap()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// Recorded by `tests/support/record_packaging.py`.
#[test]
fn file_names_are_read_as_packaging_reads_them() {
    for row in json("packaging.json")["names"].as_array().unwrap() {
        let file = row["file"].as_str().unwrap();
        let name = match (file.parse::<WheelFilename>(), row.get("error")) {
            (Ok(name), None) => name,
            (Err(error), Some(_)) => {
                assert!(error.to_string().starts_with(file), "{error}");
                continue;
            }
            (found, error) => panic!("{file}: {found:?}, packaging: {error:?}"),
        };
        assert_eq!(name.to_string(), file);
        assert_eq!(name.project.as_str(), row["project"], "{file}");
        assert_eq!(name.version.to_string(), row["version"], "{file}");
        match row["build"].as_array().unwrap().as_slice() {
            [] => assert_eq!(name.build, None, "{file}"),
            [number, rest] => {
                let build = Some((number.as_u64().unwrap(), rest.as_str().unwrap().to_owned()));
                assert_eq!(name.build, build, "{file}");
            }
            other => panic!("{other:?}"),
        }
        let tags: BTreeSet<String> = name.tags().collect();
        assert_eq!(tags, texts(&row["tags"]).into_iter().collect(), "{file}");
    }
}

/// Recorded by `tests/support/record_packaging.py`.
#[test]
fn tags_are_supported_in_the_order_of_packaging() {
    for row in json("packaging.json")["supported"].as_array().unwrap() {
        let number = |index: usize| u16::try_from(row["python"][index].as_u64().unwrap()).unwrap();
        let python = (number(0), number(1));
        let platforms = texts(&row["platforms"]);
        let expected = texts(&row["tags"]);
        assert_eq!(SupportedTags::new(python, &platforms).iter().collect::<Vec<_>>(), expected);

        // Without the old name in the list, it stands behind the new one all the same.
        let modern: Vec<String> =
            platforms.into_iter().filter(|platform| !platform.starts_with("manylinux2014")).collect();
        let supported = SupportedTags::new(python, &modern);
        assert_eq!(supported.iter().collect::<Vec<_>>(), expected);
        for (place, tag) in expected.iter().enumerate() {
            let name: WheelFilename = format!("demo-1.0-{tag}.whl").parse().unwrap();
            assert_eq!(supported.priority(&name), Some(u32::try_from(place).unwrap()), "{tag}");
            assert!(supported.mismatches(&name).is_empty());
        }
    }
}
