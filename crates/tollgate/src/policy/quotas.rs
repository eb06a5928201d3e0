//! One or several quotas, as typed.

use crate::quota::{ParseQuotaError, Quota, parse_list};

/// What a rule allows: one quota, or several with periods of their own, all of which must fit.
///
/// Made from a [`Quota`], several of them, or their text; a text that is no quota is reported when
/// the policy is built, together with everything else that is wrong with it.
///
/// ```
/// use tollgate::{Quota, policy::Quotas};
///
/// let text: Quotas = "10/s; 1000/day".into();
/// let values: Quotas = [Quota::per_second(10).unwrap(), Quota::per_day(1_000).unwrap()].into();
/// assert_eq!(text, values);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quotas {
    parsed: Result<Vec<Quota>, ParseQuotaError>,
}

impl Quotas {
    /// The quotas, or why their text is none.
    pub fn parsed(&self) -> Result<&[Quota], &ParseQuotaError> {
        self.parsed.as_deref()
    }
}

impl From<&str> for Quotas {
    fn from(text: &str) -> Self {
        Self { parsed: parse_list(text) }
    }
}

impl From<&String> for Quotas {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

impl From<String> for Quotas {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<Quota> for Quotas {
    fn from(quota: Quota) -> Self {
        vec![quota].into()
    }
}

impl<const N: usize> From<[Quota; N]> for Quotas {
    fn from(quotas: [Quota; N]) -> Self {
        Vec::from(quotas).into()
    }
}

impl From<Vec<Quota>> for Quotas {
    fn from(quotas: Vec<Quota>) -> Self {
        Self { parsed: Ok(quotas) }
    }
}
