"""What the collector keeps: models, sessions, migrations, repositories, retention."""
