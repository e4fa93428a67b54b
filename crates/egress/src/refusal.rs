//! The reasons why a connection or a request is refused or fails, for the guest and for its caller.

use serde::{Deserialize, Serialize};

use crate::address::AddressClass;

/// Declares an enum whose variants have a keyword and an explanation.
macro_rules! reasons {
    ($(#[$meta:meta])* $name:ident { $($(#[$about:meta])* $variant:ident = $keyword:literal, $text:literal;)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
        pub enum $name {
            $($(#[$about])* #[serde(rename = $keyword)] $variant,)+
        }

        impl $name {
            /// All variants.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the keyword of the variant.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $keyword,)+
                }
            }

            /// Returns the variant with this keyword.
            pub fn named(keyword: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|it| it.as_str() == keyword)
            }

            /// Returns the explanation, as the end of a sentence.
            pub const fn as_words(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }
    };
}

reasons! {
    /// A reason for which the policy refuses a connection or a request.
    Refusal {
        /// No rule matches the host.
        Host = "host", "no entry of the policy's `network.allow` names this host";
        /// No rule for the host lists the port.
        Port = "port", "the entries of the policy's `network.allow` for this host do not list this port in `ports`";
        /// No rule for the host allows the method.
        Method = "method", "the entries of the policy's `network.allow` for this host do not list this method in `methods`";
        /// No rule for the host allows the path, or a server could read it as a different path.
        Path = "path", "the entries of the policy's `network.allow` for this host do not list this path in `paths`, or a server could read it as another path";
        /// TLS or HTTP names a different host than the connection.
        Name = "name", "the request names a different host than its connection";
        /// The server name in TLS is encrypted.
        EncryptedName = "encrypted-name", "the host name is encrypted (ECH), so it cannot be checked: disable ECH";
        /// The connection carries neither TLS nor HTTP.
        Content = "content", "the connection carries neither TLS nor HTTP/1, which `raw = true` in the policy's entry would allow";
        /// A credential would be sent over an unencrypted network connection.
        ClearCredential = "clear-credential", "the policy has a credential for this host, which is sent over TLS only: use https";
        /// The host is on a private network.
        PrivateAddress = "private-address", "it is on a private network, which `private = true` in the policy's entry would allow";
        /// The host is this machine.
        OwnAddress = "own-address", "it is the machine that the sandbox runs on, which `private = true` in the policy's entry would allow";
        /// The host is a metadata service.
        MetadataAddress = "metadata-address", "it is the metadata service of a cloud";
        /// The address is link-local.
        LinkLocalAddress = "link-local-address", "it is a link-local address";
        /// The address is not that of a single host.
        UnusableAddress = "unusable-address", "it is not the address of a single host";
        /// The limit of concurrent connections is reached.
        Connections = "connections", "as many connections are open as the policy's `network.connections` allows";
        /// The byte quota is used up.
        Bytes = "bytes", "the sandbox has sent and received as many bytes as the policy's `network.bytes` allows";
        /// The guest has looked up too many names.
        Names = "names", "the sandbox has looked up too many names";
        /// The caller refuses the connection.
        Caller = "caller", "the `on_connect` of the sandbox's caller does not allow it";
        /// The caller has made no decision.
        Undecided = "undecided", "the policy's `network.ask` requires a decision by the sandbox's caller, who has made none";
        /// The request violates its protocol.
        Malformed = "malformed", "the request violates its protocol";
    }
}

reasons! {
    /// A reason for which an allowed connection or request fails.
    Failure {
        /// The name does not resolve.
        Unresolved = "unresolved", "the name does not exist";
        /// The resolver does not answer.
        Resolver = "resolver", "the resolver of the host does not answer";
        /// No address of the host answers.
        Unreachable = "unreachable", "the host does not accept the connection";
        /// The policy's proxy refuses or fails the connection.
        Proxy = "proxy", "the proxy of the policy's `network.proxy` does not provide the connection";
        /// The host's certificate is not trusted.
        Certificate = "certificate", "the host's certificate is not trusted";
        /// The host's certificate is a CA certificate.
        AuthorityCertificate = "authority-certificate", "the host's certificate is a CA certificate (`CA:TRUE`), which a server must not use: give the host one with `CA:FALSE`";
        /// The connection ended early, or the host violated HTTP.
        Broken = "broken", "the connection ended early";
        /// A timeout.
        Slow = "slow", "the other side took too long";
    }
}

impl From<AddressClass> for Refusal {
    fn from(class: AddressClass) -> Self {
        match class {
            AddressClass::Private => Self::PrivateAddress,
            AddressClass::Own => Self::OwnAddress,
            AddressClass::Metadata => Self::MetadataAddress,
            AddressClass::LinkLocal => Self::LinkLocalAddress,
            AddressClass::Public | AddressClass::Unusable => Self::UnusableAddress,
        }
    }
}

/// The result of a connection or a request.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "verdict", content = "reason", rename_all = "kebab-case")]
pub enum Verdict {
    /// It was allowed and succeeded.
    Allowed,
    /// The policy refused it.
    Refused(Refusal),
    /// It was allowed but failed.
    Failed(Failure),
}

impl Verdict {
    /// Returns the reason for the refusal or failure, as the end of a sentence.
    pub const fn as_words(self) -> Option<&'static str> {
        match self {
            Self::Allowed => None,
            Self::Refused(refusal) => Some(refusal.as_words()),
            Self::Failed(failure) => Some(failure.as_words()),
        }
    }
}
