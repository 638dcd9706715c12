//! `ssl:` and `pssl:` targets, with certificates of `ovs-pki` (Debian package openvswitch-common).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use ofagent::TlsFiles;
use openflow::message::Body;
use support::{Peer, World};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// Two authorities, a bridge's certificate of the one, and a controller's of the other; `rogue` is the bridge's
/// authority pretending to be the controllers'.
struct Authorities {
    directory: tempfile::TempDir,
}

impl Authorities {
    fn new() -> Self {
        let authorities = Self { directory: tempfile::tempdir().unwrap() };
        authorities.pki(&["init"]);
        authorities.pki(&["req+sign", "bridge", "switch"]);
        authorities.pki(&["req+sign", "controller", "controller"]);
        authorities.pki(&["req+sign", "rogue", "switch"]);
        authorities
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn pki(&self, arguments: &[&str]) {
        let mut command = Command::new("ovs-pki");
        command.arg(format!("--dir={}", self.path("pki").display()));
        command.arg(format!("--log={}", self.path("log").display()));
        command.args(arguments).current_dir(self.directory.path()).stdin(Stdio::null());
        let output = command.output().expect("ovs-pki is installed (openvswitch-common)");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }

    fn authority(&self, class: &str) -> PathBuf {
        self.path("pki").join(class).join("cacert.pem")
    }

    /// Files of the bridge.
    fn bridge(&self) -> TlsFiles {
        TlsFiles {
            private_key: self.path("bridge-privkey.pem"),
            certificate: self.path("bridge-cert.pem"),
            ca_certificate: self.authority("controllerca"),
        }
    }

    /// What a controller called `name` accepts connections with.
    fn acceptor(&self, name: &str) -> TlsAcceptor {
        let certificates = |path: &Path| CertificateDer::pem_file_iter(path).unwrap().map(Result::unwrap);
        let mut roots = RootCertStore::empty();
        certificates(&self.authority("switchca")).for_each(|root| roots.add(root).unwrap());
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
        let key = PrivateKeyDer::from_pem_file(self.path(&format!("{name}-privkey.pem"))).unwrap();
        let chain = certificates(&self.path(&format!("{name}-cert.pem"))).collect();
        let config =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_client_cert_verifier(verifier.build().unwrap());
        Arc::new(config.with_single_cert(chain, key).unwrap()).into()
    }
}

async fn greet(listener: &TcpListener, acceptor: &TlsAcceptor) -> Peer<TlsStream<TcpStream>> {
    let stream = listener.accept().await.unwrap().0;
    Peer::greet(acceptor.accept(stream).await.unwrap()).await
}

#[tokio::test]
async fn a_controller_is_verified_and_verifies() {
    let authorities = Authorities::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let world = World::new(|settings, _| {
        settings.controllers = vec![format!("ssl:127.0.0.1:{port}").parse().unwrap()];
        settings.tls = Some(authorities.bridge());
    });
    // A controller of another authority is turned away.
    let stream = listener.accept().await.unwrap().0;
    let refused = authorities.acceptor("rogue").accept(stream).await;
    assert!(refused.is_err());
    world
        .until("the rogue refused", |world| {
            world.controller().last_error.is_some_and(|error| error.contains("UnknownIssuer"))
        })
        .await;
    // Plain text is no TLS.
    drop(listener.accept().await.unwrap());
    let mut controller = greet(&listener, &authorities.acceptor("controller")).await;
    controller.barrier().await;
    // Larger than a record of TLS, and than what the socket holds.
    let content = vec![7; 60_000];
    for _ in 0..50 {
        let Body::EchoReply(reply) = controller.ask(Body::EchoRequest(content.clone())).await else {
            panic!()
        };
        assert_eq!(reply, content);
    }
    assert!(world.controller().is_connected());
    world.agent.shutdown().await;
    assert!(controller.read().await.is_none());
}

#[tokio::test]
async fn ovs_ofctl_connects_with_its_certificate_only() {
    let authorities = Authorities::new();
    let world = World::new(|settings, _| {
        settings.controllers = vec!["pssl:0:127.0.0.1".parse().unwrap()];
        settings.tls = Some(authorities.bridge());
    });
    world.until("a listener", |world| world.controller().address.is_some()).await;
    let port = world.controller().address.unwrap().port();
    let run = |name: &'static str| {
        let mut command = Command::new("ovs-ofctl");
        command.args(["-vOFF", "-t", "20", "-O", "OpenFlow13"]);
        for (option, file) in [
            ("-p", authorities.path(&format!("{name}-privkey.pem"))),
            ("-c", authorities.path(&format!("{name}-cert.pem"))),
            ("-C", authorities.authority("switchca")),
        ] {
            command.arg(option).arg(file);
        }
        command.args(["dump-ports-desc", &format!("ssl:127.0.0.1:{port}")]).stdin(Stdio::null());
        tokio::task::spawn_blocking(move || command.output().unwrap())
    };
    let output = run("controller").await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("4(p4): addr:"), "{output:?}");
    let output = run("rogue").await.unwrap();
    assert!(!output.status.success(), "{output:?}");
    world
        .until("the rogue refused", |world| {
            world
                .controller()
                .last_error
                .is_some_and(|error| error.contains("TLS handshake with ssl:127.0.0.1"))
        })
        .await;
    world.agent.shutdown().await;
}

#[test]
fn files_are_checked() {
    let authorities = Authorities::new();
    let files = authorities.bridge();
    files.check().unwrap();
    let with = |change: fn(&mut TlsFiles)| {
        let mut files = authorities.bridge();
        change(&mut files);
        files.check().unwrap_err().to_string()
    };
    let swapped = with(|files| files.private_key = files.certificate.clone());
    assert!(swapped.contains("bridge-cert.pem: cannot be read as a private key in PEM"), "{swapped}");
    let none = with(|files| files.ca_certificate = files.private_key.clone());
    assert!(none.contains("bridge-privkey.pem: has no certificate in PEM"), "{none}");
    let missing = with(|files| files.certificate = "/no/such".into());
    assert!(missing.contains("/no/such: cannot be read as a certificate in PEM"), "{missing}");
    let misfit = with(|files| files.private_key = files.private_key.with_file_name("rogue-privkey.pem"));
    assert!(misfit.contains("rogue-privkey.pem and certificate"), "{misfit}");
}
