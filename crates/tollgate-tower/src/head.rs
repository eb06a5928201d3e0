//! The head of a request, whether or not its body has been set aside.

use http::request::Parts;
use http::{Extensions, HeaderMap, Method, Request, Uri, Version};

/// What is looked at of a request. Setting its body aside, and putting it back, moves it about; so
/// that is done only for those who want to see [`Parts`].
pub(crate) trait Head {
    fn method(&self) -> &Method;
    fn uri(&self) -> &Uri;
    fn version(&self) -> Version;
    fn headers(&self) -> &HeaderMap;
    fn extensions(&self) -> &Extensions;
    /// The head by itself, if the body was set aside.
    fn parts(&self) -> Option<&Parts>;
}

impl Head for Parts {
    fn method(&self) -> &Method {
        &self.method
    }

    fn uri(&self) -> &Uri {
        &self.uri
    }

    fn version(&self) -> Version {
        self.version
    }

    fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    fn parts(&self) -> Option<&Parts> {
        Some(self)
    }
}

impl<B> Head for Request<B> {
    fn method(&self) -> &Method {
        self.method()
    }

    fn uri(&self) -> &Uri {
        self.uri()
    }

    fn version(&self) -> Version {
        self.version()
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }

    fn extensions(&self) -> &Extensions {
        self.extensions()
    }

    fn parts(&self) -> Option<&Parts> {
        None
    }
}
