"""The promises that users of such models rely on, each a property, each seen to fail for a named mutation."""
