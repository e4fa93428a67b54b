//! TLS termination, for servers without a reverse proxy that does it.

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio_rustls::{Accept, TlsAcceptor};

use crate::config::TlsFiles;
use crate::start_error::StartError;

/// Terminates TLS.
pub struct Tls(TlsAcceptor);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The acceptor contains the private key.
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads the certificate chain and its private key.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, or if the certificate and the key do not match.
    pub fn read(files: &TlsFiles) -> Result<Self, StartError> {
        let wrong = |path: &Path| {
            let path = path.display().to_string();
            move |cause: PemError| {
                StartError::Usage(format!("tls: {path}: {cause}; use a PEM file"))
            }
        };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(&files.certificate)
            .map_err(wrong(&files.certificate))?
            .collect();
        let chain = chain.map_err(wrong(&files.certificate))?;
        if chain.is_empty() {
            return Err(wrong(&files.certificate)(PemError::NoItemsFound));
        }
        let key = PrivateKeyDer::from_pem_file(&files.key).map_err(wrong(&files.key))?;
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key));
        // The certificate and the key do not match.
        let mut config = config.map_err(|cause| {
            let sentence = format!("tls: the certificate and the key cannot be used: {cause}");
            StartError::Usage(sentence)
        })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// Starts the handshake of a connection.
    pub fn accept(&self, stream: TcpStream) -> Accept<TcpStream> {
        self.0.accept(stream)
    }
}
