"""What commands print, and how they end."""
