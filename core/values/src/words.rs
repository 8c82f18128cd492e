//! What types have in common that are text for everybody else.

/// Declares an enum each of whose variants has a word, by which documents, clients and people know it. `ALL` has them in this order.
#[macro_export]
macro_rules! words {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $name:ident { $($(#[$of:meta])* $variant:ident = $word:literal,)+ }
    ) => {
        $(#[$attribute])*
        $visibility enum $name {
            $($(#[$of])* $variant,)+
        }

        impl $name {
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            pub fn named(word: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|one| one.as_str() == word)
            }
        }
    };
}

/// Has `Debug` say this of what is secret.
#[macro_export]
macro_rules! not_shown {
    ($name:ident, $this:ident => $($text:tt)+) => {
        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                let $this = self;
                write!(f, $($text)+)
            }
        }
    };
    ($name:ident) => {
        $crate::not_shown!($name, _this => concat!(stringify!($name), "(not shown)"));
    };
}

/// Shows what wraps text as that text. With an error that has text, too, and what tells whether that is legal, reads it.
#[macro_export]
macro_rules! shown_as_text {
    ($name:ident) => {
        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
    ($name:ident, $error:ident, $is_legal:expr) => {
        $crate::shown_as_text!($name);

        impl ::std::str::FromStr for $name {
            type Err = $error;

            fn from_str(text: &str) -> Result<Self, $error> {
                let is_legal: fn(&str) -> bool = $is_legal;
                if is_legal(text) { Ok(Self(text.to_owned())) } else { Err($error(text.to_owned())) }
            }
        }
    };
}
