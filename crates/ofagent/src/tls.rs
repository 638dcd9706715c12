//! TLS of `ssl:` and `pssl:` targets.
//!
//! Invariant: each side has a certificate, whose chain up to the other side's authority is verified. Names are not
//! compared: controllers are known by address, and an authority of their own vouches for them, as in Open vSwitch.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::verify_server_cert_signed_by_trust_anchor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig, SignatureScheme,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Files with a bridge's key and certificate and with the authority that vouches for controllers, in PEM. They are read
/// for each connection to a controller, and when the bridge starts to listen for some.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The private key.
    pub private_key: PathBuf,
    /// The certificate, with intermediate ones if there are some.
    pub certificate: PathBuf,
    /// The certificates of authorities.
    pub ca_certificate: PathBuf,
}

/// Reasons why TLS is not possible.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// There are no files.
    #[error("TLS needs a private key, a certificate and an authority's certificate")]
    NoFiles,
    /// A file cannot be used.
    #[error("{}: {problem}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        problem: String,
    },
    /// Key and certificate do not fit.
    #[error("key {} and certificate {}: {error}", .files.private_key.display(), .files.certificate.display())]
    Pair {
        /// The files.
        files: Box<TlsFiles>,
        /// The reason.
        error: Error,
    },
    /// TLS itself cannot be set up.
    #[error("{0}")]
    Setup(String),
}

/// The contents of the files.
struct Loaded {
    key: PrivateKeyDer<'static>,
    chain: Vec<CertificateDer<'static>>,
    authorities: Arc<RootCertStore>,
}

impl TlsFiles {
    /// Checks that the files can be used.
    ///
    /// # Errors
    /// A file cannot be read, has another content, or key and certificate do not fit.
    pub fn check(&self) -> Result<(), TlsError> {
        self.acceptor().map(drop)
    }

    fn load(&self) -> Result<Loaded, TlsError> {
        let key = PrivateKeyDer::from_pem_file(&self.private_key)
            .map_err(|error| bad_file(&self.private_key, "a private key", error))?;
        let chain = certificates(&self.certificate)?;
        let mut authorities = RootCertStore::empty();
        for certificate in certificates(&self.ca_certificate)? {
            authorities
                .add(certificate)
                .map_err(|error| bad_file(&self.ca_certificate, "an authority's certificate", error))?;
        }
        Ok(Loaded { key, chain, authorities: Arc::new(authorities) })
    }

    /// For connections to controllers.
    pub(crate) fn connector(&self) -> Result<TlsConnector, TlsError> {
        let Loaded { key, chain, authorities } = self.load()?;
        let provider = Arc::new(ring::default_provider());
        let verifier = Arc::new(ChainVerifier { authorities, provider: provider.clone() });
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::Setup(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_auth_cert(chain, key)
            .map_err(|error| self.misfit(error))?;
        config.enable_sni = false;
        Ok(TlsConnector::from(Arc::new(config)))
    }

    /// For connections of controllers.
    pub(crate) fn acceptor(&self) -> Result<TlsAcceptor, TlsError> {
        let Loaded { key, chain, authorities } = self.load()?;
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(authorities, provider.clone())
            .build()
            .map_err(|error| bad_file(&self.ca_certificate, "an authority's certificate", error))?;
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::Setup(error.to_string()))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(|error| self.misfit(error))?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    fn misfit(&self, error: Error) -> TlsError {
        TlsError::Pair { files: Box::new(self.clone()), error }
    }
}

/// The name that a connection is made for. It is neither sent nor compared.
pub(crate) fn unused_name() -> ServerName<'static> {
    ServerName::IpAddress(std::net::IpAddr::from([0, 0, 0, 0]).into())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bad = |error| bad_file(path, "a certificate", error);
    let found: Vec<_> =
        CertificateDer::pem_file_iter(path).map_err(bad)?.collect::<Result<_, _>>().map_err(bad)?;
    match found.is_empty() {
        true => Err(TlsError::File { path: path.into(), problem: "has no certificate in PEM".into() }),
        false => Ok(found),
    }
}

fn bad_file(path: &Path, expected: &str, error: impl fmt::Display) -> TlsError {
    TlsError::File { path: path.into(), problem: format!("cannot be read as {expected} in PEM: {error}") }
}

/// Verifies the chain of a controller's certificate, not its name.
#[derive(Debug)]
struct ChainVerifier {
    authorities: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ChainVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &self.authorities,
            intermediates,
            now,
            algorithms,
        )?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
