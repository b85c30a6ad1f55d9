//! Wheels on their way: to the bucket in parts, from it in ranges.

use std::io::{self, Read};

use bytes::Bytes;
use object_store::aws::AmazonS3;
use object_store::path::Path as Key;
use object_store::{ObjectStoreExt as _, PutPayload, WriteMultipart};
use tokio::io::AsyncReadExt as _;

use super::{Bucket, PIECES_AT_ONCE};

/// Size in bytes of the parts in which a wheel is sent. S3 takes 10,000 of them.
const PIECE: usize = 8 << 20;

/// Size in bytes of the ranges in which a wheel is read.
const RANGE: u64 = 4 << 20;

/// Sends a file, in parts where it is large. An error of the file itself is the inner one.
pub(super) async fn send(
    client: &AmazonS3,
    key: &Key,
    path: &std::path::Path,
) -> object_store::Result<Result<(), io::Error>> {
    let mut file = match tokio::fs::File::open(path).await {
        Ok(file) => file,
        Err(error) => return Ok(Err(error)),
    };
    let mut piece = match next(&mut file).await {
        Ok(piece) => piece,
        Err(error) => return Ok(Err(error)),
    };
    if piece.len() < PIECE {
        return client.put(key, PutPayload::from_bytes(piece)).await.map(|_| Ok(()));
    }
    let mut upload = WriteMultipart::new_with_chunk_size(client.put_multipart(key).await?, PIECE);
    while !piece.is_empty() {
        upload.wait_for_capacity(PIECES_AT_ONCE).await?;
        upload.put(piece);
        piece = match next(&mut file).await {
            Ok(piece) => piece,
            Err(error) => {
                let _lost_parts_expire = upload.abort().await;
                return Ok(Err(error));
            }
        };
    }
    upload.finish().await.map(|_| Ok(()))
}

async fn next(file: &mut tokio::fs::File) -> io::Result<Bytes> {
    let mut piece = Vec::with_capacity(PIECE);
    file.take(PIECE as u64).read_to_end(&mut piece).await?;
    Ok(piece.into())
}

/// Reads an object range by range.
pub(super) struct Ranges {
    pub(super) bucket: Bucket,
    pub(super) key: Key,
    pub(super) at: u64,
    pub(super) end: u64,
    pub(super) piece: io::Cursor<Bytes>,
}

impl Read for Ranges {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = Read::read(&mut self.piece, buffer)?;
        if count > 0 || buffer.is_empty() || self.at >= self.end {
            return Ok(count);
        }
        let range = self.at..self.at.saturating_add(RANGE).min(self.end);
        let key = &self.key;
        let bytes = self.bucket.ask(|client| {
            let (key, range) = (key.clone(), range.clone());
            async move { client.get_range(&key, range).await }
        });
        let bytes = bytes.map_err(io::Error::other)?.ok_or(io::ErrorKind::NotFound)?;
        if bytes.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.at = self.at.saturating_add(bytes.len() as u64);
        self.piece = io::Cursor::new(bytes);
        Read::read(&mut self.piece, buffer)
    }
}
