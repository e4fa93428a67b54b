//! Why a connection or a request does not take place, for the guest and for its caller.

use serde::{Deserialize, Serialize};

use crate::address::AddressClass;

/// Declares an enum with a word and an explanation for each variant.
macro_rules! reasons {
    ($(#[$meta:meta])* $name:ident { $($(#[$about:meta])* $variant:ident = $word:literal, $text:literal;)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
        pub enum $name {
            $($(#[$about])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The word that names it.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// The one that this word names.
            pub fn named(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|it| it.as_str() == word)
            }

            /// Why, as the end of a sentence.
            pub const fn as_words(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }
    };
}

reasons! {
    /// What the policy does not allow.
    Refusal {
        /// No rule is for the host.
        Host = "host", "no entry of the policy's `network.allow` has this host";
        /// No rule for the host has the port.
        Port = "port", "the entries of the policy's `network.allow` for this host do not have this port in `ports`";
        /// No rule for the host has the method.
        Method = "method", "the entries of the policy's `network.allow` for this host do not have this method in `methods`";
        /// No rule for the host has the path, or servers could read it as another.
        Path = "path", "the entries of the policy's `network.allow` for this host do not have this path in `paths`, or a server could read it as another path";
        /// TLS or HTTP names another host than the connection.
        Name = "name", "the request names another host than the connection that it is sent over";
        /// The name in TLS is encrypted.
        EncryptedName = "encrypted-name", "the name of the host is encrypted (ECH), so it cannot be compared: switch ECH off";
        /// Neither TLS nor HTTP.
        Content = "content", "the connection carries neither TLS nor HTTP/1, which `raw = true` in the policy's entry would allow";
        /// A credential would cross the network in the clear.
        ClearCredential = "clear-credential", "the policy has a credential for this host, which is sent over TLS only: use https";
        /// The name leads to a private network.
        PrivateAddress = "private-address", "it is on a private network, which `private = true` in the policy's entry would allow";
        /// The name leads to this machine.
        OwnAddress = "own-address", "it is the machine that the sandbox runs on, which `private = true` in the policy's entry would allow";
        /// The name leads to a metadata service.
        MetadataAddress = "metadata-address", "it is the metadata service of a cloud";
        /// The name leads to the link.
        LinkLocalAddress = "link-local-address", "it is a link-local address";
        /// The address is that of no host.
        UnusableAddress = "unusable-address", "it is not the address of one host";
        /// As many connections as allowed are open.
        Connections = "connections", "as many connections are open as the policy's `network.connections` allows";
        /// As many bytes as allowed were carried.
        Bytes = "bytes", "the sandbox has sent and received as many bytes as the policy's `network.bytes` allows";
        /// More names than one guest may ask for.
        Names = "names", "the sandbox has asked for too many names";
        /// The caller refuses it.
        Caller = "caller", "the `on_connect` of the sandbox's caller does not allow it";
        /// The caller has not decided.
        Undecided = "undecided", "the policy's `network.ask` requires a decision of the sandbox's caller, who has given none";
        /// Not what the protocol says.
        Malformed = "malformed", "the request does not follow its protocol";
    }
}

reasons! {
    /// What went wrong on the way.
    Failure {
        /// The name does not resolve.
        Unresolved = "unresolved", "the name does not exist";
        /// The resolver does not answer.
        Resolver = "resolver", "the resolver of the host does not answer";
        /// No address of the host answers.
        Unreachable = "unreachable", "the host does not accept the connection";
        /// The proxy of the policy does not provide the connection.
        Proxy = "proxy", "the proxy of the policy's `network.proxy` does not provide the connection";
        /// The host's certificate is not trusted.
        Certificate = "certificate", "the host's certificate is not trusted";
        /// The host's certificate is that of an authority.
        AuthorityCertificate = "authority-certificate", "the host's certificate is one for an authority (`CA:TRUE`) and for no server: give the host one with `CA:FALSE`";
        /// The connection ended too early, or broke HTTP.
        Broken = "broken", "the connection ended in the middle";
        /// One side took too long.
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

/// What became of a connection or a request.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "verdict", content = "reason", rename_all = "kebab-case")]
pub enum Verdict {
    /// It took place.
    Allowed,
    /// The policy does not allow it.
    Refused(Refusal),
    /// It did not come about.
    Failed(Failure),
}

impl Verdict {
    /// Why it did not take place, as the end of a sentence.
    pub const fn as_words(self) -> Option<&'static str> {
        match self {
            Self::Allowed => None,
            Self::Refused(refusal) => Some(refusal.as_words()),
            Self::Failed(failure) => Some(failure.as_words()),
        }
    }
}
