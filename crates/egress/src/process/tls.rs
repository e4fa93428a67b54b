//! TLS on both sides of this process: as a server towards guests, and as a client towards hosts.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use super::authority::Authority;
use super::head::Guest;
use super::locked;
use super::metered::Metered;
use crate::control::{self, NotReady};
use crate::host::Host;

/// ALPN protocol names.
pub const HTTP1: &[u8] = b"http/1.1";
/// See [`HTTP1`].
pub const HTTP2: &[u8] = b"h2";

/// The maximum number of hosts whose certificates are cached.
const MAX_CACHED: usize = 256;

/// The TLS state that all connections share.
#[derive(Debug)]
pub struct Tls {
    client_config: Arc<ClientConfig>,
    authority: Authority,
    server_configs: Mutex<HashMap<Host, Arc<ServerConfig>>>,
}

impl Tls {
    /// Loads the host's trusted certificates, and restores or generates the CA.
    ///
    /// # Errors
    /// Returns the step that failed.
    pub fn new(
        trust: Option<&Path>,
        earlier: Option<control::Authority>,
    ) -> Result<(Self, control::Authority), NotReady> {
        let mut roots = RootCertStore::empty();
        if let Some(path) = trust {
            let certificates = CertificateDer::pem_file_iter(path);
            let certificates = certificates.map_err(|error| unreadable_file(path, &error))?;
            // One unreadable certificate does not invalidate the others.
            roots.add_parsable_certificates(certificates.filter_map(Result::ok));
        }
        let client_config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("set up TLS: {error}"))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let authority = Authority::new(earlier);
        let (authority, known) =
            authority.map_err(|error| format!("make the authority's certificate: {error}"))?;
        let tls = Self {
            client_config: Arc::new(client_config),
            authority,
            server_configs: Mutex::default(),
        };
        Ok((tls, known))
    }

    /// Performs the TLS handshake with a guest, as the host.
    pub async fn accept(&self, host: &Host, guest: Guest) -> io::Result<server::TlsStream<Guest>> {
        let config = self.server_config(host).map_err(io::Error::other)?;
        TlsAcceptor::from(config).accept(guest).await
    }

    /// Performs the TLS handshake with a host, whose certificate must be trusted by the host system, and offers these
    /// ALPN protocols.
    pub async fn connect(
        &self,
        host: &Host,
        stream: Metered,
        offer: &[&[u8]],
    ) -> io::Result<client::TlsStream<Metered>> {
        let name = match host {
            Host::Name(name) => ServerName::try_from(name.clone()).map_err(io::Error::other)?,
            Host::Address(address) => ServerName::from(*address),
        };
        let connector = TlsConnector::from(Arc::clone(&self.client_config));
        let offer = offer.iter().map(|protocol| protocol.to_vec()).collect();
        connector.with_alpn(offer).connect(name, stream).await
    }

    fn server_config(&self, host: &Host) -> Result<Arc<ServerConfig>, String> {
        let mut cached = locked(&self.server_configs);
        if let Some(config) = cached.get(host) {
            return Ok(Arc::clone(config));
        }
        let certificate = self.authority.certify(host);
        let certificate = certificate.map_err(|error| error.to_string())?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], self.authority.key())
            .map_err(|error| error.to_string())?;
        config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
        let config = Arc::new(config);
        if cached.len() >= MAX_CACHED {
            cached.clear();
        }
        cached.insert(host.clone(), Arc::clone(&config));
        Ok(config)
    }
}

fn unreadable_file(path: &Path, error: &rustls::pki_types::pem::Error) -> NotReady {
    let path = path.display();
    let remedy = "set SSL_CERT_FILE to a file of certificates (PEM) that this user can read";
    NotReady {
        what: format!("read the trusted certificates of {path}: {error}"),
        remedy: Some(remedy.to_owned()),
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_certificates_name_file_and_variable() {
        let file = Path::new("/nowhere/certificates.pem");
        let refused = Tls::new(Some(file), None).expect_err("there is none");
        assert!(refused.what.contains("/nowhere/certificates.pem"));
        assert!(
            refused
                .remedy
                .is_some_and(|it| it.contains("SSL_CERT_FILE"))
        );
    }
}
