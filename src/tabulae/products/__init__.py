"""Products: the kinds of release. Each lives in one folder: spec, plan, count, measure, estimate, publish, view."""
