"""`{% load pod_cells %}`: the filters that render the cells of a pod grid; `rollouts.web.pod_cells` defines them."""

from django import template

from rollouts.web import pod_cells

register = template.Library()

register.filter("render_cells", pod_cells.render_cells)
register.filter("render_nodes", pod_cells.render_nodes)
register.filter("render_tiles", pod_cells.render_tiles)
register.filter("select_replica", pod_cells.render_select_replica)
