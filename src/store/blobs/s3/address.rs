//! Where a bucket is, and how it is spoken to.

use std::path::PathBuf;
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::{BackoffConfig, Certificate, ClientOptions, RetryConfig};

use crate::store::Error;
use crate::store::away::{FIRST_PAUSE, LONGEST_PAUSE};
use crate::wording::with_causes;

/// How long a connection may take, and how long an answer may stay away.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const READ_TIMEOUT: Duration = Duration::from_secs(15);

/// How long the client tries by itself: a refused connection, a 5xx.
const RETRIES: usize = 2;
const RETRY_TIMEOUT: Duration = Duration::from_secs(5);

/// A bucket of an S3-compatible store.
#[derive(Clone, Default)]
pub struct S3 {
    /// `s3://bucket/prefix`.
    pub url: String,
    /// The server, such as `https://s3.site.example`; none for Amazon's.
    pub endpoint: Option<String>,
    /// The server as devices reach it, where that is another address.
    pub public_endpoint: Option<String>,
    /// Region; `us-east-1` where none is said.
    pub region: Option<String>,
    /// Whether the bucket is a part of the path, not of the host.
    pub path_style: bool,
    /// PEM file with certificate authorities, besides the system's.
    pub ca: Option<PathBuf>,
    /// Whether files are streamed through the mirror, instead of by a redirect to a signed address.
    pub stream: bool,
    /// Credentials and what else Amazon's tools read, as names and values of `AWS_…` variables.
    pub variables: Vec<(String, String)>,
}

impl std::fmt::Debug for S3 {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "S3 {{ url: {:?}, endpoint: {:?} }}", self.url, self.endpoint)
    }
}

impl S3 {
    /// A client of the bucket at one of the two addresses; what is wrong with them is the inner error.
    pub(super) fn client(
        &self,
        bucket: &str,
        endpoint: Option<&String>,
    ) -> Result<AmazonS3, Result<Error, String>> {
        let mut builder = AmazonS3Builder::new();
        for (name, value) in &self.variables {
            if let Ok(key) = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>() {
                builder = builder.with_config(key, value);
            }
        }
        let mut options = ClientOptions::new()
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_read_timeout(READ_TIMEOUT)
            .with_timeout_disabled();
        if let Some(path) = &self.ca {
            let text = fs_err::read(path).map_err(|error| Ok(Error::io(path)(error)))?;
            let certificates = Certificate::from_pem_bundle(&text).map_err(|error| Err(error.to_string()))?;
            options = certificates.into_iter().fold(options, ClientOptions::with_root_certificate);
        }
        let backoff = BackoffConfig {
            init_backoff: FIRST_PAUSE,
            max_backoff: LONGEST_PAUSE,
            ..BackoffConfig::default()
        };
        builder = builder
            .with_bucket_name(bucket)
            .with_virtual_hosted_style_request(!self.path_style)
            .with_client_options(options)
            .with_retry(RetryConfig { backoff, max_retries: RETRIES, retry_timeout: RETRY_TIMEOUT });
        if let Some(region) = &self.region {
            builder = builder.with_region(region);
        }
        if let Some(endpoint) = endpoint {
            builder = builder.with_endpoint(endpoint).with_allow_http(endpoint.starts_with("http://"));
        }
        builder.build().map_err(|error| Err(with_causes(&error)))
    }
}

/// Bucket and prefix of `s3://bucket/prefix`; the prefix is empty or ends in a slash.
pub(super) fn parse(url: &str) -> Result<(String, String), String> {
    let rest = url.strip_prefix("s3://").ok_or("an address of blobs is s3://bucket/prefix")?;
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        return Err("the bucket is missing: s3://bucket/prefix".to_owned());
    }
    let prefix = prefix.trim_matches('/');
    let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
    Ok((bucket.to_owned(), prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_bucket_and_perhaps_a_prefix() {
        let parts = |url: &str| parse(url).map(|(bucket, prefix)| format!("{bucket} {prefix}"));
        assert_eq!(parts("s3://wheels"), Ok("wheels ".to_owned()));
        assert_eq!(parts("s3://wheels/site/a/"), Ok("wheels site/a/".to_owned()));
        assert!(parts("s3:///a").is_err());
        assert!(parts("https://wheels/a").is_err());
    }
}
