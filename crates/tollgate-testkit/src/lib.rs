//! tollgate-testkit
