"""The admin site: accounts now; overrides, clusters and audit join as they are built."""

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin

from rollouts.models import User

admin.site.register(User, UserAdmin)
