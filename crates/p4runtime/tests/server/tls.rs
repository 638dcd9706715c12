//! TCP with TLS, with certificates of `openssl`.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use p4runtime::{Listen, Server, Settings, StartError, TlsFiles};
use p4runtime_proto::v1::CapabilitiesRequest;
use p4runtime_proto::v1::p4_runtime_client::P4RuntimeClient;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tonic::codegen::Service;
use tonic::codegen::http::Uri;
use tonic::transport::Endpoint;

use super::fake::Fake;
use super::world::soon;

/// An authority, with certificates that it has signed.
struct Authority(tempfile::TempDir);

impl Authority {
    fn new(names: &[&str]) -> Self {
        let authority = Self(tempfile::tempdir().unwrap());
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        authority.openssl(&format!("req -x509 {key} -keyout ca.key -out ca.pem -days 9 -subj /CN=ca"));
        std::fs::write(authority.path("names"), "subjectAltName=IP:127.0.0.1").unwrap();
        for name in names {
            authority.openssl(&format!("req -new {key} -keyout {name}.key -out {name}.csr -subj /CN={name}"));
            authority.openssl(&format!(
                "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 9 -extfile names \
                 -out {name}.pem"
            ));
        }
        authority
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn openssl(&self, arguments: &str) {
        let output =
            Command::new("openssl").args(arguments.split(' ')).current_dir(self.0.path()).output().unwrap();
        assert!(output.status.success(), "{arguments}: {output:?}");
    }

    fn files(&self, client_ca: Option<PathBuf>) -> TlsFiles {
        TlsFiles { private_key: self.path("server.key"), certificate: self.path("server.pem"), client_ca }
    }
}

fn certificate(path: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(path).unwrap()
}

/// Connects with TLS.
#[derive(Clone)]
struct Connector {
    address: std::net::SocketAddr,
    config: Arc<ClientConfig>,
}

impl Connector {
    /// Trusts the server's authority, and shows the certificate of a name of another one's.
    fn new(listen: &Listen, trusted: &Authority, shown: Option<(&Authority, &str)>) -> Self {
        let Listen::Tcp(address) = *listen else { panic!("{listen}") };
        let mut roots = RootCertStore::empty();
        roots.add(certificate(&trusted.path("ca.pem"))).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match shown {
            None => builder.with_no_client_auth(),
            Some((by, name)) => {
                let key = PrivateKeyDer::from_pem_file(by.path(&format!("{name}.key"))).unwrap();
                builder
                    .with_client_auth_cert(vec![certificate(&by.path(&format!("{name}.pem")))], key)
                    .unwrap()
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Self { address, config: Arc::new(config) }
    }

    async fn serves(self) -> bool {
        let endpoint = Endpoint::from_static("http://switch");
        let Ok(channel) = soon(endpoint.connect_with_connector(self)).await else { return false };
        soon(P4RuntimeClient::new(channel).capabilities(CapabilitiesRequest::default())).await.is_ok()
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Self { address, config } = self.clone();
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            let name = ServerName::IpAddress(address.ip().into());
            Ok(TokioIo::new(tokio_rustls::TlsConnector::from(config).connect(name, stream).await?))
        })
    }
}

fn start(tls: TlsFiles) -> Result<Server, StartError> {
    let listen = vec!["tcp:127.0.0.1:0".parse().unwrap()];
    let settings = Settings { listen, tls: Some(tls), ..Settings::default() };
    Server::start(&Handle::current(), settings, Arc::new(Fake::default()))
}

#[tokio::test]
async fn controllers_are_verified_where_an_authority_is_named() {
    let (ours, theirs) = (Authority::new(&["server"]), Authority::new(&["controller"]));
    let server = start(ours.files(None)).unwrap();
    let at = &server.listening()[0];
    assert!(Connector::new(at, &ours, None).serves().await);
    assert!(!Connector::new(at, &theirs, None).serves().await, "the client verifies the server");
    let server = start(ours.files(Some(theirs.path("ca.pem")))).unwrap();
    let at = &server.listening()[0];
    // One that does not even begin its handshake keeps nobody else waiting.
    let Listen::Tcp(address) = at else { panic!("{at}") };
    let _silent = TcpStream::connect(address).await.unwrap();
    assert!(Connector::new(at, &ours, Some((&theirs, "controller"))).serves().await);
    assert!(
        !Connector::new(at, &ours, Some((&ours, "server"))).serves().await,
        "signed by another authority"
    );
    assert!(!Connector::new(at, &ours, None).serves().await, "without a certificate");
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named() {
    let ours = Authority::new(&["server", "other"]);
    let files = ours.files(None);
    files.check().unwrap();
    let none = TlsFiles { certificate: ours.path("none.pem"), ..files.clone() };
    let empty = TlsFiles { client_ca: Some(ours.path("names")), ..files.clone() };
    let key = TlsFiles { private_key: ours.path("other.key"), ..files.clone() };
    for (files, named, problem) in [
        (none, "none.pem", "not a certificate in PEM"),
        (empty, "names", "has no certificate in PEM"),
        (key, "other.key", "server.pem"),
    ] {
        let error = start(files).err().unwrap().to_string();
        assert!(
            error.starts_with("cannot use TLS: ") && error.contains(named) && error.contains(problem),
            "{error}"
        );
    }
}
