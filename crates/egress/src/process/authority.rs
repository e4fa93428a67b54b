//! The certificate authority (CA) that the guests of this sandbox trust. Only this process and the supervisor hold its
//! key.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::control;
use crate::host::Host;

/// Signs certificates for hosts.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// The key of all host certificates.
    key: KeyPair,
}

/// Returns the parameters of the CA certificate, without its key.
fn ca_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    let name = &mut params.distinguished_name;
    name.push(DnType::CommonName, "Sandfork sandbox");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn generate() -> Result<control::Authority, rcgen::Error> {
    let key = KeyPair::generate()?;
    Ok(control::Authority {
        certificate: pem(ca_params().self_signed(&key)?.der()),
        key: BASE64.encode(key.serialized_der()),
    })
}

fn key_of(known: &control::Authority) -> Result<KeyPair, rcgen::Error> {
    let bytes = BASE64.decode(&known.key);
    KeyPair::try_from(bytes.map_err(|_| rcgen::Error::CouldNotParseKeyPair)?)
}

/// Encodes a certificate as PEM (RFC 7468).
fn pem(certificate: &[u8]) -> String {
    let text = BASE64.encode(certificate);
    let lines: Vec<&str> = text
        .as_bytes()
        .chunks(64)
        .filter_map(|line| std::str::from_utf8(line).ok())
        .collect();
    format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        lines.join("\n")
    )
}

impl Authority {
    /// Restores the CA of an earlier process, or generates a new one. Also returns the data that restores it later.
    pub fn new(
        earlier: Option<control::Authority>,
    ) -> Result<(Self, control::Authority), rcgen::Error> {
        let known = earlier.map_or_else(generate, Ok)?;
        let authority = Self {
            issuer: Issuer::new(ca_params(), key_of(&known)?),
            key: KeyPair::generate()?,
        };
        Ok((authority, known))
    }

    /// Signs a certificate for a host.
    pub fn certify(&self, host: &Host) -> Result<CertificateDer<'static>, rcgen::Error> {
        let mut params = CertificateParams::new([host.to_string()])?;
        let name = &mut params.distinguished_name;
        // Not the host name, which may be longer than this field allows: clients check the subject alternative name.
        name.push(DnType::CommonName, "Sandfork sandbox: a host of the policy");
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(&self.key, &self.issuer)?;
        Ok(certificate.der().clone())
    }

    /// Returns the key of all host certificates.
    pub fn key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.serialize_der()).into()
    }
}
