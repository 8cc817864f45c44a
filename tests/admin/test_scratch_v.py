import pytest
from django.test import Client
from rollouts import models, mirror
from rollouts.models import *
from django.contrib.auth.models import Group

SECRET="hunter2hunter2"

def _w(add_workload):
    return add_workload("web","chat")

def test_oracle(ada, row, add_workload):
    import inspect
    w = add_workload()
    obj = Workload.objects.first()
    obj.manifest = {**obj.manifest, "zz": SECRET}; obj.save()
    for q in ("manifest__zz__startswith=hunter", "manifest__zz__startswith=nope", "manifest__icontains=hunter2", "manifest__icontains=nope1"):
        r = ada.get("/admin/rollouts/workload/?"+q)
        print(q, r.status_code, r.headers.get("Location"), obj.name in r.content.decode() if r.status_code==200 else "")
    for url in ("/admin/rollouts/apitoken/?digest__startswith=a","/admin/rollouts/user/?password__startswith=p","/admin/rollouts/apitoken/?user__password__startswith=p","/admin/rollouts/user/?tokens__digest__startswith=a", "/admin/rollouts/revision/?template__icontains=a"):
        r = ada.get(url); print(url, r.status_code, r.headers.get("Location"))
    r = ada.get("/admin/search/?s=chat"); print(r.status_code, r.content[:300])
    assert 0

def test_lockout(ada, sign_in):
    me = User.objects.get(username="ada")
    page = ada.get(f"/admin/rollouts/user/{me.pk}/change/")
    print(page.status_code)
    data={"username":"ada","first_name":"","last_name":"","email":"","grants-TOTAL_FORMS":"0","grants-INITIAL_FORMS":"0"}
    r=ada.post(f"/admin/rollouts/user/{me.pk}/change/", data); print(r.status_code, r.headers.get("Location"))
    print(list(me.groups.all()))
    print(ada.get("/admin/").status_code)
    assert 0

def test_double_grant(ada, sign_in):
    b = User.objects.create_user("bob")
    data={"username":"bob","is_active":"on","first_name":"","last_name":"","email":"","grants-TOTAL_FORMS":"2","grants-INITIAL_FORMS":"0",
      "grants-0-cluster":"","grants-0-namespace":"a","grants-0-user":b.pk,"grants-1-cluster":"","grants-1-namespace":"a","grants-1-user":b.pk}
    ada.raise_request_exception=False
    r=ada.post(f"/admin/rollouts/user/{b.pk}/change/", data); print(r.status_code)
    data["grants-TOTAL_FORMS"]="1"
    r=ada.post(f"/admin/rollouts/user/{b.pk}/change/", data); print("one", r.status_code)
    r=ada.post(f"/admin/rollouts/user/{b.pk}/change/", data); print("again", r.status_code, "already" in r.content.decode())
    print(NamespaceGrant.objects.count())
    assert 0

def test_delete_user_with_token(ada):
    b = User.objects.create_user("bob")
    ApiToken.objects.create(user=b,name="x",prefix="",digest="d")
    r=ada.get(f"/admin/rollouts/user/{b.pk}/delete/"); t=r.content.decode(); i=t.find("would"); print(r.status_code, t[i-200:i+600])
    r=ada.post(f"/admin/rollouts/user/{b.pk}/delete/", {"post":"yes"}); print(r.status_code)
    assert 0

def test_password(ada):
    su = User.objects.create_superuser("root", password=None)
    r=ada.get(f"/admin/rollouts/user/{su.pk}/password/"); print(r.status_code)
    r=ada.post(f"/admin/rollouts/user/{su.pk}/password/", {"password1":"aaaaaaaa11!!","password2":"aaaaaaaa11!!"}); print(r.status_code)
    r=ada.post(f"/admin/rollouts/user/{su.pk}/change/", {"username":"x"}); print(r.status_code)
    r=ada.get(f"/admin/rollouts/user/{su.pk}/delete/"); print(r.status_code)
    b = User.objects.create_user("bob")
    r=ada.post(f"/admin/rollouts/user/{b.pk}/change/", {"username":"bob","is_superuser":"on","is_active":"on","grants-TOTAL_FORMS":"0","grants-INITIAL_FORMS":"0"}); b.refresh_from_db(); print(r.status_code,b.is_superuser)
    n=AuditEntry.objects.count()
    r=ada.post(f"/admin/rollouts/user/{b.pk}/password/", {"usable_password":"true","password1":"aaaaaaaa11!!","password2":"aaaaaaaa11!!"}); print(r.status_code, AuditEntry.objects.count()-n)
    n=AuditEntry.objects.count()
    r=ada.post(f"/admin/rollouts/user/{b.pk}/password/", {"usable_password":"false","unset-password":"x"}); b.refresh_from_db(); print(r.status_code, b.has_usable_password(), AuditEntry.objects.count()-n)
    r=ada.post("/admin/rollouts/user/add/", {"username":"newguy","usable_password":"true","password1":"aaaaaaaa11!!","password2":"aaaaaaaa11!!","is_superuser":"on"}); print(r.status_code, User.objects.filter(username="newguy").values_list("is_superuser"), AuditEntry.objects.last().detail)
    assert 0

def test_staff_without_role(sign_in):
    s = sign_in("staff", "", is_staff=True)
    for u in ("/admin/","/admin/rollouts/user/","/admin/rollouts/workload/","/admin/search/?s=a","/admin/rollouts/auditentry/","/admin/rollouts/auditentry/export/","/admin/autocomplete/?app_label=rollouts&model_name=namespacegrant&field_name=user","/admin/password_change/","/admin/rollouts/strategyoverride/", "/admin/rollouts/strategyoverride/check/", "/admin/rollouts/apitoken/"):
        print(u, s.get(u).status_code)
    o = sign_in("op","operator")
    for u in ("/admin/","/admin/rollouts/user/","/admin/search/?s=a","/admin/password_change/"):
        print("op",u, o.get(u).status_code)
    os_ = sign_in("ops","operator",is_staff=True)
    for u in ("/admin/","/admin/rollouts/user/","/admin/rollouts/auditentry/export/","/admin/rollouts/workload/","/admin/rollouts/apitoken/","/admin/rollouts/strategyoverride/add/"):
        print("ops",u, os_.get(u).status_code)
    assert 0
