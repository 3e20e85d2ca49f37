"""What the boards are made of: queries that know their names, panels, layout, and the last pass over the JSON."""
