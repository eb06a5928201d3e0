//! tollgate-bench
