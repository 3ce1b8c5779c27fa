"""People who sign in with OpenID Connect; needs the extra ``oidc``."""
