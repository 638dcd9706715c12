//! TLS of TCP connections.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// Files of the server's key and certificate, in PEM. They are read when the server starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The private key.
    pub private_key: PathBuf,
    /// The certificate, followed by intermediate ones if there are some.
    pub certificate: PathBuf,
    /// Certificates of the authorities that vouch for controllers; `None` accepts controllers without a certificate.
    pub client_ca: Option<PathBuf>,
}

/// Reasons why TLS is not possible.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be used.
    #[error("{}: {problem}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        problem: String,
    },
    /// Key and certificate do not fit.
    #[error("key {} and certificate {}: {problem}", .files.private_key.display(), .files.certificate.display())]
    Pair {
        /// The files.
        files: Box<TlsFiles>,
        /// The reason.
        problem: String,
    },
}

impl TlsFiles {
    /// Checks that the files can be used.
    ///
    /// # Errors
    /// A file cannot be read, has another content, or key and certificate do not fit.
    pub fn check(&self) -> Result<(), TlsError> {
        self.acceptor().map(drop)
    }

    pub(crate) fn acceptor(&self) -> Result<TlsAcceptor, TlsError> {
        let key = PrivateKeyDer::from_pem_file(&self.private_key)
            .map_err(|error| bad_file(&self.private_key, format!("not a private key in PEM: {error}")))?;
        let chain = certificates(&self.certificate)?;
        let provider = Arc::new(ring::default_provider());
        let pair = |error: tokio_rustls::rustls::Error| TlsError::Pair {
            files: Box::new(self.clone()),
            problem: error.to_string(),
        };
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(pair)?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut authorities = RootCertStore::empty();
                for certificate in certificates(path)? {
                    authorities.add(certificate).map_err(|error| bad_file(path, error.to_string()))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(authorities.into(), provider)
                    .build()
                    .map_err(|error| bad_file(path, error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(pair)?;
        // Clients of gRPC insist on it.
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| bad_file(path, format!("not a certificate in PEM: {error}")))?;
    match found.is_empty() {
        true => Err(bad_file(path, "has no certificate in PEM".into())),
        false => Ok(found),
    }
}

fn bad_file(path: &Path, problem: String) -> TlsError {
    TlsError::File { path: path.into(), problem }
}
