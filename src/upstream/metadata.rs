//! Core metadata without the wheel: by the file beside it, or by ranges of the zip.

use http::header;
use url::Url;

use super::client::{Client, Purpose};
use super::error::{Error, shown};
use super::page::Link;
use super::zip_tail::{LARGEST_METADATA, TAIL, find_directory, find_metadata};
use crate::digest::Sha256;
use crate::simple::CoreMetadata;

/// Core metadata, and how it was had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetadataSource {
    /// The file beside the wheel (PEP 658). It may differ from what the wheel holds.
    Beside(Vec<u8>),
    /// Out of the wheel itself, by ranges.
    Inside(Vec<u8>),
}

impl MetadataSource {
    /// The metadata.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Beside(bytes) | Self::Inside(bytes) => bytes,
        }
    }
}

/// Fetches a wheel's core metadata without the wheel.
///
/// The file beside the wheel is asked for where the page offers it, and its digest checked where the page states one. Without
/// it, or if it is missing or wrong, the zip's end is read by ranges. None if the upstream has neither.
pub async fn fetch_metadata(client: &Client, link: &Link) -> Result<Option<MetadataSource>, Error> {
    if link.file.core_metadata != CoreMetadata::Absent {
        match client.retrying(|| beside(client, link)).await {
            Ok(bytes) => return Ok(Some(MetadataSource::Beside(bytes))),
            Err(error) => {
                let file = &link.file.filename;
                tracing::info!(
                    error = &error as &dyn std::error::Error,
                    file,
                    "no metadata beside the wheel"
                );
            }
        }
    }
    Ok(fetch_metadata_inside(client, link).await?.map(MetadataSource::Inside))
}

/// Reads a wheel's core metadata at the zip's end by ranges, whatever lies beside it. None if the upstream answers no ranges.
pub async fn fetch_metadata_inside(client: &Client, link: &Link) -> Result<Option<Vec<u8>>, Error> {
    client.retrying(|| inside(client, &link.url)).await
}

/// The URL of the file beside a wheel: the ending comes before a query string.
fn beside_url(url: &Url) -> Url {
    let mut beside = url.clone();
    beside.set_path(&format!("{}.metadata", url.path()));
    beside
}

async fn beside(client: &Client, link: &Link) -> Result<Vec<u8>, Error> {
    let url = beside_url(&link.url);
    let answer = client.get(Purpose::File, &url, &[]).await?;
    if answer.status() != 200 {
        return Err(answer.status_error());
    }
    let bytes = answer.body(LARGEST_METADATA).await?;
    let found = Sha256::of(&bytes);
    match link.file.core_metadata {
        CoreMetadata::Hashed(expected) if expected != found => {
            Err(Error::Hash { url: shown(&url), expected, found, size: bytes.len() as u64 })
        }
        _ => Ok(bytes),
    }
}

/// A piece of a file, and where it lies.
struct Piece {
    at: u64,
    bytes: Vec<u8>,
}

async fn inside(client: &Client, url: &Url) -> Result<Option<Vec<u8>>, Error> {
    let wrong = |why: &'static str| Error::Zip { url: shown(url), why: why.to_owned() };
    let Some(tail) = piece(client, url, format!("bytes=-{TAIL}"), TAIL).await? else { return Ok(None) };
    let directory = find_directory(&tail.bytes, tail.at).map_err(wrong)?;
    let Some(entries) = part(client, url, &tail, directory.at, directory.size).await? else {
        return Ok(None);
    };
    let member = find_metadata(&entries).map_err(wrong)?;
    // The span is a guess that may reach beyond the member, but never beyond the directory behind it.
    let span = member.span().min(directory.at.saturating_sub(member.at));
    let Some(local) = part(client, url, &tail, member.at, span).await? else { return Ok(None) };
    member.unpack(&local).map(Some).map_err(wrong)
}

/// A part of the file, out of the tail if that has it.
async fn part(
    client: &Client,
    url: &Url,
    tail: &Piece,
    at: u64,
    size: u64,
) -> Result<Option<Vec<u8>>, Error> {
    if size == 0 {
        return Ok(Some(Vec::new()));
    }
    if let Some(skip) = at.checked_sub(tail.at).and_then(|skip| usize::try_from(skip).ok())
        && let Ok(len) = usize::try_from(size)
        && let Some(bytes) = tail.bytes.get(skip..skip.saturating_add(len))
    {
        return Ok(Some(bytes.to_vec()));
    }
    let last = at.saturating_add(size).saturating_sub(1);
    let piece = piece(client, url, format!("bytes={at}-{last}"), size).await?;
    Ok(piece.filter(|piece| piece.at == at && piece.bytes.len() as u64 == size).map(|piece| piece.bytes))
}

/// Asks for a range; none where the upstream does not answer with one.
async fn piece(client: &Client, url: &Url, range: String, limit: u64) -> Result<Option<Piece>, Error> {
    let answer = client.get(Purpose::File, url, &[(header::RANGE, range)]).await?;
    match answer.status() {
        206 => {}
        200 | 416 => return Ok(None),
        _ => return Err(answer.status_error()),
    }
    let at = answer
        .header(&header::CONTENT_RANGE)
        .and_then(|range| range.strip_prefix("bytes ")?.split_once('-')?.0.trim().parse().ok());
    let Some(at) = at else { return Ok(None) };
    Ok(Some(Piece { at, bytes: answer.body(limit).await? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// pip#12033: `.metadata` behind the query string asks for another file.
    #[test]
    fn the_ending_comes_before_a_query_string() {
        let url = "https://a.test/f/demo-1.0%2Bcu1-py3-none-any.whl?sig=abc".parse().unwrap();
        assert_eq!(
            beside_url(&url).as_str(),
            "https://a.test/f/demo-1.0%2Bcu1-py3-none-any.whl.metadata?sig=abc"
        );
    }
}
